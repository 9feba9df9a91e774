-- Takes back the vote of a token, if its edition is not later. So an undo that arrives late removes no later vote. The place in the queue
-- stays, and so does an offer.
--
-- KEYS  1 lock
-- ARGV  1 vote
-- Returns 1 if the vote is removed, else 0
--
-- Atomic, because compare and delete are one script.
local token, edition = parts(ARGV[1])
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
if type(holder) == 'string' then
  local held, of = parts(holder)
  if held == token and of and of >= 1 and of <= edition then
    redis.call('DEL', KEYS[1])
    return 1
  end
end
return refused_by_replica(KEYS[1]) or 0
