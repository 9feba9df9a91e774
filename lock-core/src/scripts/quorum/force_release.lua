-- Takes the vote of this node from its holder, notifies the client of the holder, and offers the vote to the first waiter.
--
-- KEYS  1 lock  2 queue  3 waiters
-- ARGV  1 the id of the only client to take it from, '' for any
-- Returns 1 taken away, 0 not held, held by another client, or only an offer, {'foreign', kind} the key is not a lock and was not
--         changed
--
-- Atomic, so that the notified holder is the holder that lost the vote.
local lock = KEYS[1]
local holder = redis.pcall('GET', lock)
if not holder then return 0 end
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', redis.call('TYPE', lock)['ok']}
end
if ARGV[1] ~= '' and ARGV[1] ~= string.sub(holder, 1, ID) then return 0 end
local pttl = redis.call('PTTL', lock)
if pttl == -1 then return {'foreign', 'string without a ttl'} end
local token, edition = parts(holder)
-- An offer that its waiter has not accepted yet.
if edition == 0 then return 0 end
-- DEL comes first: if the server refuses writes, no client is notified of a loss.
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel_of(token, KEYS[2]), 'revoked ' .. token)
offer(lock, KEYS[2], KEYS[3])
return 1
