-- Takes back one acquisition. The last one of an owner deletes the lock and announces it. Also the clean-up
-- of an acquisition that was given up, whether it was granted or not.
--
-- KEYS  1 lock  2 holds  3 channel
-- ARGV  1 owner  2 token  3 publish command
-- Returns {n} where the lock is free now, and n connections were told; else how often the owner holds it still; -1
-- where the token is not counted (never granted, released before, or the lock ended without it)
--
-- Atomic because compare, count and delete are one script: the lock of another owner is never touched, and
-- a release that is repeated does not count twice. The lease stays as it is, since the other holds rely on it.
local lock, holds = KEYS[1], KEYS[2]
local owner, token = ARGV[1], ARGV[2]

local holder, count = holder_of(lock)
-- Something else under our name certainly does not count our token; a read that was refused says nothing.
if not holder and count and count.err then return count end

-- HDEL comes first and always: a replica refuses it, so that it can not answer "not counted" by mistake, and
-- a server short of memory allows it. After it, Redis lets a script finish.
if redis.call('HDEL', holds, token) == 0 then return -1 end
if holder ~= owner then
  redis.call('DEL', holds)
  return -1
end
if count > 1 then return redis.call('HINCRBY', lock, owner, -1) end
redis.call('DEL', lock, holds)
-- A refused PUBLISH (an ACL) undoes nothing: who waits asks again before long.
local heard = redis.pcall(ARGV[3], KEYS[3], '0')
return {type(heard) == 'number' and heard or 0}
