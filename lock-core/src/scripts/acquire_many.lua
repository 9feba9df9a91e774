-- Takes those of several locks that are free and that nobody queues for.
--
-- KEYS  1 fence, then for each: lock, queue
-- ARGV  for each: token, ttl in ms
-- Returns for each the fencing token, or 0 where nothing was done and `acquire` has to look at it
--
-- Atomic as `acquire` is. What can not be read, or not be written, is left to `acquire`, which says why.
local t = redis.call('TIME')
local minted = t[1] * 1000000 + t[2]
local granted, free = {}, 0
for i = 1, #ARGV / 2 do
  if redis.pcall('EXISTS', KEYS[i * 2], KEYS[i * 2 + 1]) == 0 then
    granted[i] = free
    free = free + 1
  else
    granted[i] = false
  end
end
if free > 0 then
  local last = redis.call('SET', KEYS[1], string.format('%.0f', minted + free - 1), 'GET')
  last = tonumber(last or 0) or 0
  if last >= minted then
    minted = last + 1
    redis.call('SET', KEYS[1], string.format('%.0f', minted + free - 1))
  end
end
for i = 1, #granted do
  local set = granted[i] and redis.pcall('SET', KEYS[i * 2], ARGV[i * 2 - 1], 'NX', 'PX', ARGV[i * 2])
  granted[i] = set and not set.err and minted + granted[i] or 0
end
return granted
