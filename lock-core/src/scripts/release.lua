-- Removes everything that a token has: the lock, or a place in the queue. The first live waiter is granted the lock in the same
-- step, so no other client acquires it in between, and no other waiter has to be woken.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters; of an election 5 leader
-- ARGV  1 token
-- The brief form has the first 2 keys.
-- Returns 0 the token does not hold the lock, 1 released, 2 handed over to a waiter; -1: the full form has to follow
--
-- Atomic because compare, delete and grant are one script: the lock of another holder is never touched.
local lock, queue, fence, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]

-- `holder` comes from release_brief.lua. A key of another type is certainly not held by this token. A GET that was refused (an ACL)
-- proves nothing.
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
if holder == token then
  -- A server short of memory still allows the first write.
  local head = redis.pcall('LPOP', queue)
  if type(head) == 'table' then
    -- Data of another type is not a queue, and does not prevent the release.
    if not string.find(head.err, 'WRONGTYPE', 1, true) then return head end
    head = false
  end
  local caller = channel_of(token, queue)
  if grant_first(lock, queue, waiters, fence, head, '', 0, caller) then return 2 end
  -- Also if a step of the grant was refused: the first waiter finds the lock free when it asks.
  redis.call('DEL', lock)
  if lead then lead(KEYS[5]) end
  return 1
end

-- HDEL always comes first: a replica refuses it, and so cannot answer "not held" by mistake.
if redis.call('HDEL', waiters, token) == 1 then
  redis.call('LREM', queue, 1, token)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', waiters) end
end
-- A leader whose lock was taken from it is named until it says that it has gone.
if lead and term_of(KEYS[5], token) then lead(KEYS[5]) end
return 0
