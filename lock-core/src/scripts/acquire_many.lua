-- Takes those of several locks that are free and that nobody queues for.
--
-- KEYS  1 fence, then the locks, then their queues
-- ARGV  for each lock: token, ttl in ms
-- Returns for each the fencing token, or 0 where nothing was done and `acquire` has to look at it
--
-- Atomic as `acquire` is. What can not be read, or not be written, is left to `acquire`, which says why. A call for each
-- lock costs as much as the rest, so what can be asked for all of them is.
local count = #ARGV / 2
local granted = {}
if redis.pcall('EXISTS', unpack(KEYS, 2, count + 1)) == count then
  for i = 1, count do granted[i] = 0 end
  return granted
end
local queued = redis.pcall('EXISTS', unpack(KEYS, count + 2)) ~= 0
local t = redis.call('TIME')
local minted = t[1] * 1000000 + t[2]
local last = redis.call('SET', KEYS[1], string.format('%.0f', minted + count - 1), 'GET')
last = tonumber(last or 0) or 0
if last >= minted then
  minted = last + 1
  redis.call('SET', KEYS[1], string.format('%.0f', minted + count - 1))
end
for i = 1, count do
  local free = not queued or redis.pcall('EXISTS', KEYS[count + 1 + i]) == 0
  local set = free and redis.pcall('SET', KEYS[i + 1], ARGV[i * 2 - 1], 'NX', 'PX', ARGV[i * 2])
  granted[i] = set and not set.err and minted + i - 1 or 0
end
return granted
