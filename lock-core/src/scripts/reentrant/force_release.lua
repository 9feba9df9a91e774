-- Takes the lock from its owner, with all its holds. Notifies the clients of the counted acquisitions, and announces that the
-- lock is free.
--
-- KEYS  1 lock  2 holds  3 channel
-- ARGV  1 publish command  2 in a cluster: publish command of sharded channels
-- Returns 1 taken away, 0 not held, {'foreign', kind} the key is not a lock and was not changed
--
-- Atomic, so that the notified clients are the clients that lost the lock.
local lock, holds = KEYS[1], KEYS[2]
local holder, foreign = holder_of(lock)
if not holder then return foreign or refused_by_replica(lock) or 0 end

-- Holds of another type name no client. An ACL refuses this read, like the others, before anything is written.
local of = redis.pcall('HGET', holds, 'owner')
if type(of) == 'table' and not string.find(of.err, 'WRONGTYPE', 1, true) then return of end
local counted = of == holder and redis.call('HKEYS', holds) or {}
redis.call('DEL', lock, holds)
for _, token in ipairs(counted) do
  if string.match(token, TOKEN) then redis.pcall('PUBLISH', channel_of(token, holds), 'revoked ' .. token) end
end
announce(KEYS[3], ARGV[1], ARGV[2])
return 1
