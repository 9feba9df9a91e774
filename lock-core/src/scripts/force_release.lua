-- Takes the lock from its holder, notifies the holder's client, and grants the lock to the next waiter.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters; of an election 5 leader
-- Returns 1 taken away, 0 not held, {'foreign', kind} the key is not a lock and was not changed
--
-- Atomic, so that the notified holder is the holder that lost the lock.
local lock = KEYS[1]
local holder = redis.pcall('GET', lock)
if not holder then return refused_by_replica(lock) or 0 end
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', redis.call('TYPE', lock)['ok']}
end
local pttl = redis.call('PTTL', lock)
if pttl == -1 then return {'foreign', 'string without a ttl'} end
-- DEL comes first: if the server refuses writes, no client is notified of a loss.
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel_of(holder, KEYS[2]), 'revoked ' .. holder)
-- If the grant is refused, the waiter finds the lock free when it asks.
local head = redis.pcall('LPOP', KEYS[2])
if type(head) == 'table' or not grant_first(lock, KEYS[2], KEYS[4], KEYS[3], head, '', 0, '') then
  redis.call('DEL', lock)
  if lead then lead(KEYS[5]) end
end
return 1
