-- Releases one acquisition. The last release of an owner deletes the lock and announces it. This is also the clean-up of an
-- abandoned acquisition, granted or not.
--
-- KEYS  1 lock  2 holds  3 channel
-- ARGV  1 owner  2 token  3 publish command  4 in a cluster: publish command of sharded channels
-- Returns {n} if the lock is free now, and n connections were notified; else the number of holds that the owner still has; -1
-- if the token is not counted (never granted, released before, or the lock ended without it)
--
-- Atomic because compare, count and delete are one script: the lock of another owner is never touched, and a repeated release
-- does not count twice. The other holds rely on the lease: it becomes shorter only if all of them are known to need no more.
local lock, holds = KEYS[1], KEYS[2]
local owner, token = ARGV[1], ARGV[2]

local holder, count, known = holder_of(lock, true)
-- A key of another type certainly does not count this token. A read that was refused (an ACL) proves nothing.
if not holder and count and count.err then return count end

-- Another process of this owner may have crashed, or may need the lock for a shorter time than this one. A refusal here has
-- changed nothing, so the release can be repeated.
local clients, several, now, lasts
if holder == owner and known and count > 1 then
  local text = redis.pcall('HGET', holds, 'clients')
  if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE', 1, true) then return text end
  clients, several = clients_of(text)
  if several > 1 then now, lasts = now_ms(), redis.call('PTTL', lock) end
end

-- HDEL comes before other writes and always: a replica refuses it, so that it cannot answer "not counted" by mistake, and a
-- server short of memory allows it. After it, Redis lets a script finish.
local counted = redis.pcall('HDEL', holds, token)
if type(counted) == 'table' then
  -- Holds of another type are lost, as if they were evicted.
  if not string.find(counted.err, 'WRONGTYPE', 1, true) then return counted end
  counted = 0
end
if counted == 0 then return -1 end
-- Another owner has the lock, or a client that does not know the holds has acquired it again for this owner. This release does
-- not affect that lock.
if holder ~= owner or not known then
  redis.call('DEL', holds)
  return -1
end
local known_until
if now then count, known_until = bury(lock, holds, owner, count, clients, now) end
local left
if count > 1 then
  left = redis.pcall('HINCRBY', lock, owner, -1)
else
  left = redis.pcall('DEL', lock, holds)
end
if type(left) == 'table' then
  -- Refused (an ACL): counted again, so that a later release finds it.
  redis.call('HSET', holds, token, 1)
  return left
end
if count > 1 and known_until == left then
  local last = 0
  for _, ends in pairs(clients) do last = math.max(last, ends - now) end
  local done = lasts > last and redis.pcall('PEXPIRE', lock, last)
  if type(done) == 'table' then
    redis.call('HINCRBY', lock, owner, 1)
    redis.call('HSET', holds, token, 1)
    return done
  end
  redis.pcall('HSET', holds, 'clients', written(clients))
  redis.pcall('PEXPIRE', holds, last + AFTER)
  -- The waiters know the longer lease. Without a message they repeat their requests only every few seconds.
  if lasts > last + 1000 then announce(KEYS[3], ARGV[3], ARGV[4]) end
end
if count > 1 then return left end
return {announce(KEYS[3], ARGV[3], ARGV[4])}
