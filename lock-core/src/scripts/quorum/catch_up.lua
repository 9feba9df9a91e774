-- Raises the fencing counter of a node to its clock. A server that has restarted may have forgotten the last of what it
-- had counted; its clock is above that, unless it counts more than a million in a second, or follows clocks that are
-- ahead of it by more than it was away.
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
