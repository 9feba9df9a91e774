-- Takes the lock for an owner, or once more for the owner that has it, or says that another has it. Asking
-- again with a token that is counted already changes nothing but the lease: the retry of a call whose reply
-- was lost.
--
-- KEYS  1 lock  2 holds  3 fence
-- ARGV  1 owner  2 token  3 ttl, ms
--       4 how many fencing tokens the client wants to give out itself, should a tenure begin
-- Returns one of
--   {n, count}         granted, with this fencing token, and the owner holds it so often
--   {'busy', pttl}     another owner holds it; -1 where its lease has no end
--   {'foreign', kind}  the name is taken by something that is not a lock
--
-- The fencing token belongs to the tenure: taking the lock once more does not change it.
--
-- Atomic because it is one script. The first write is one that a server short of memory refuses, so that
-- nothing is half done.
local lock, holds, fence = KEYS[1], KEYS[2], KEYS[3]
local owner, token, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])

local holder, count = holder_of(lock)
if not holder and count then return count end
if holder and holder ~= owner then return {'busy', redis.call('PTTL', lock)} end

if holder then
  local known = redis.call('HMGET', holds, 'owner', 'fence', token)
  if known[1] == owner then
    if not known[3] then
      count = redis.call('HINCRBY', lock, owner, 1)
      redis.call('HSET', holds, token, 1)
    end
    prolong(lock, holds, ttl)
    return {tonumber(known[2]), count}
  end
end

-- A new tenure, or one that a client began which knows no fencing tokens. What the holds say is of the past.
local minted = mint(fence, tonumber(ARGV[4]))
count = redis.call('HINCRBY', lock, owner, 1)
redis.call('DEL', holds)
redis.call('HSET', holds, 'owner', owner, 'fence', minted, token, 1)
if holder then
  prolong(lock, holds, ttl)
else
  redis.call('PEXPIRE', lock, ttl)
  redis.call('PEXPIRE', holds, ttl)
end
return {tonumber(minted), count}
