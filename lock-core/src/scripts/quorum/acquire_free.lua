-- Votes for a lock that is free and that nobody queues for. In front of everything else of acquire, whose header says what
-- KEYS, ARGV and the reply are: the common case pays for none of the functions defined there.
--
-- The same mint as in mint.lua, with fewer steps: as a rule the token is the one that is proposed. Its text is at hand (to
-- format a number of 16 digits costs as much as a command), and a node that has its counter needs no clock to be above
-- every token that it knows of.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local text, gap = ARGV[3], ARGV[5] or 0
  local minted = tonumber(text)
  if gap ~= 0 then text = string.format('%.0f', minted + gap) end
  local last = tonumber(redis.call('SET', KEYS[4], text, 'GET') or 0) or 0
  if last == 0 or last >= minted then
    local t = redis.call('TIME')
    local now = math.max(t[1] * 1000000 + t[2], last + 1, minted)
    if now ~= minted then
      minted = now
      redis.call('SET', KEYS[4], string.format('%.0f', minted + gap))
    end
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return minted
end

