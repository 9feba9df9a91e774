-- Removes everything that a token may have on this node: its vote, an offer, a place in the queue.
--
-- KEYS  1 lock  2 queue  3 waiters
-- ARGV  1 token  2 'undo' if an acquisition has failed, so that no waiter needs an offer; otherwise left out, because each argument
--         costs a node as much as a command
-- Returns 1 if the token had the vote, else 0
--
-- Atomic, because compare and delete are one script: the vote of another token is never removed.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, undo = ARGV[1], ARGV[2]

local holder = redis.pcall('GET', lock)
-- A key of another type is not the vote of this token. A refused GET (an ACL) proves nothing.
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
-- HDEL always comes first: a replica refuses it, and so cannot answer "not held" by mistake.
local waits = leave(queue, waiters, token)
if holder == token then
  -- An offer that its waiter has not accepted is not a vote of the token.
  local had = not (waits and redis.call('PTTL', lock) <= OFFER)
  redis.call('DEL', lock)
  if not undo then offer(lock, queue, waiters) end
  return had and 1 or 0
end
return 0
