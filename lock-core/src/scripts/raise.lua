-- Raises the counter of fencing tokens to the clock of the server, or to the largest token that a client knows. After a failover, the
-- new master may have lost the last writes of the old one, and if the counter was ahead of the clock, the clock alone is not a floor.
-- Without the clock, a counter that was lost would look sound here, but be smaller than the tokens of others, which count on.
--
-- KEYS  1 fence
-- ARGV  1 minimum of the counter
-- Returns 1
--
-- Atomic, because the counter must not decrease.
local last, t = redis.pcall('GET', KEYS[1]), redis.call('TIME')
last = type(last) == 'string' and tonumber(last) or 0
local least = math.max(tonumber(ARGV[1]), t[1] * 1000000 + t[2])
if last < least then redis.call('SET', KEYS[1], string.format('%.0f', least)) end
return 1
