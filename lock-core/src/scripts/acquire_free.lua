-- Takes a lock that is free and has no queue. In front of the rest of acquire, whose header describes KEYS, ARGV and the reply:
-- the common case does not pay for the functions that are defined there.
--
-- The same mint as in mint.lua, for a token that is returned as a number.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local t = redis.call('TIME')
  local micros = t[2]
  if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
  local now, gap = t[1] .. micros, ARGV[6]
  local minted = tonumber(now)
  local counter = gap == '0' and now or string.format('%.0f', minted + gap)
  local last = redis.pcall('SET', KEYS[4], counter, 'GET')
  if type(last) == 'table' then
    redis.call('SET', KEYS[4], counter)
    last = nil
  end
  last = tonumber(last or 0) or 0
  if last >= minted then
    minted = last + 1
    redis.call('SET', KEYS[4], string.format('%.0f', minted + gap))
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return minted
end

