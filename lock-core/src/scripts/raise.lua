-- Raises the counter of fencing tokens to the largest token that a client knows. After a failover, the new master may have lost
-- the last writes of the old one. If the counter was ahead of the clock, the clock alone is not a floor.
--
-- KEYS  1 fence
-- ARGV  1 minimum of the counter
-- Returns 1
--
-- Atomic, because the counter must not decrease.
local last = redis.pcall('GET', KEYS[1])
last = type(last) == 'string' and tonumber(last) or 0
if last < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return 1
