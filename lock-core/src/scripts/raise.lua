-- Raises the counter of fencing tokens to the largest one that a client knows. After a failover, a new master may have lost the
-- last writes of the old one, and the clock alone is no floor for a counter that was ahead of it.
--
-- KEYS  1 fence
-- ARGV  1 minimum of the counter
-- Returns 1
--
-- Atomic because a counter must never go back.
local last = redis.pcall('GET', KEYS[1])
last = type(last) == 'string' and tonumber(last) or 0
if last < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return 1
