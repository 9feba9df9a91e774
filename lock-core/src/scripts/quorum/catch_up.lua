-- Raises the fencing counter of a node to its clock. A restarted server may have lost its last counts. Its clock is above them,
-- unless it counted more than a million in a second, or followed clocks that were ahead of its own by more than it was away.
--
-- KEYS  1 fence
-- Returns 1
--
-- Atomic because a counter must never go back.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if (tonumber(redis.pcall('GET', KEYS[1])) or 0) < now then
  redis.call('SET', KEYS[1], string.format('%.0f', now))
end
return 1
