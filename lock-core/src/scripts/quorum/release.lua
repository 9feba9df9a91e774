-- Removes everything that a token may have on this node: its vote up to this edition, an offer, a place in the queue.
--
-- KEYS  1 lock  2 queue  3 waiters
-- ARGV  1 vote
-- Returns 1 if the token had the vote, else 0. A vote of a later edition counts: an attempt that was under way when the lock was released
--         has replaced the vote, and takes its own back
--
-- Atomic, because compare and delete are one script: the vote of another token is never removed.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, edition = parts(ARGV[1])

local holder = redis.pcall('GET', lock)
-- A key of another type is not the vote of this token. A refused GET (an ACL) proves nothing.
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
-- HDEL always comes first: a replica refuses it, and so cannot answer "not held" by mistake.
leave(queue, waiters, token)
if type(holder) == 'string' then
  local held, of = parts(holder)
  if held == token and of then
    if of > edition then return 1 end
    redis.call('DEL', lock)
    offer(lock, queue, waiters)
    -- An offer that its waiter has not accepted is not a vote of the token.
    return of > 0 and 1 or 0
  end
end
return 0
