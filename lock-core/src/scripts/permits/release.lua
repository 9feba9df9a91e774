-- Removes everything that a token has: its permits, or its place in the queue. Waiters that fit are granted permits in the same step.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters
-- ARGV  1 token
-- Returns 0 the token holds nothing, 1 released, 2 released, and a waiter was granted permits
--
-- Atomic because the sum, the removal and the grants are one script.
local ends, weight = open(nil, token, known)
if ends then
  -- First, because a server short of memory allows it, and then lets the script finish.
  redis.call('HDEL', lock, token)
  s.used, s.dirty = s.used - weight, true
  return settle() > 0 and 2 or 1
end
-- The other key may be anything, or nothing that this user may read.
if weight and weight[1] ~= 'foreign' then return weight end

-- HDEL always comes first: a replica refuses it, and so cannot answer "not held" by mistake.
local waited = redis.call('HDEL', waiters, token) == 1
if waited then redis.call('LREM', queue, 1, token) end
if not weight then
  -- A smaller request behind it may fit; and so may any, if a member has expired, which is often this one.
  settle()
elseif waited and redis.call('EXISTS', queue) == 0 then
  redis.call('DEL', waiters)
end
return 0
