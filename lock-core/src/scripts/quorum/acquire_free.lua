-- Votes for a lock that is free and that nobody queues for. In front of everything else of acquire, whose header says what
-- KEYS, ARGV and the reply are: the common case pays for none of the functions defined there.
--
-- The same mint as in mint.lua, with fewer steps: as a rule the token is the one that is proposed. Its text is at hand (to
-- format a number of 16 digits costs as much as a command, and to read one is not free), and a node that has its counter
-- needs no clock to be above every token that it knows of. Texts of one length are in the order of their numbers.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local text, gap = ARGV[3], ARGV[5] or 0
  if gap ~= 0 then text = string.format('%.0f', text + gap) end
  local last = redis.call('SET', KEYS[4], text, 'GET')
  local minted = 1
  if not last or #last ~= #ARGV[3] or last >= ARGV[3] then
    local t, proposed = redis.call('TIME'), tonumber(ARGV[3])
    minted = math.max(t[1] * 1000000 + t[2], (tonumber(last or 0) or 0) + 1, proposed)
    if minted ~= proposed then redis.call('SET', KEYS[4], string.format('%.0f', minted + gap)) end
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return minted
end

