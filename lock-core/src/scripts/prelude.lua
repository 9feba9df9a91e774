-- Constants of the scripts. A test compares them with the same constants of the client.

-- Length of a client id, in characters. Each token begins with the id of its client.
local ID = 36
-- Our names begin so, behind the namespace.
local OURS = 'lock-core:'
-- Prefix of the channel of a client, behind the namespace. The client id follows.
local CHANNELS = 'lock-core:client:'
-- Minimum reserve of a waiter: other waiters may join its process before the grant.
local RESERVE = 7
-- Ttl of a queue, ms. Longer than any waiter counts as alive, so that a queue of dead waiters expires by itself.
local QUEUE_TTL = 30000
-- Ttl of an offer, ms: a node of a quorum reserves its vote this long for a waiter that it has notified.
local OFFER = 50

-- Names the leader of an election: see election/lead.lua. Nil for other kinds.
local lead

-- The channel of the client of a token, given any of our keys beside the lock.
local function channel_of(token, key)
  local ours = string.find(key, OURS, 1, true)
  return string.sub(key, 1, ours - 1) .. CHANNELS .. string.sub(token, 1, ID)
end

-- The name of the client in a token, which is `client id:number:name`. Empty in a token of another kind of client. A later version
-- may append to a token, behind a brace, to an entry of a queue or a hash, behind a space.
local function name_in(token)
  return string.match(string.sub(token, ID + 1), '^:%d+:([^{]+)') or ''
end

-- A write that changes nothing, before the reply that a lock is not held, or is held by another client. The data of a replica may
-- be old, and a replica refuses to write. Returns this refusal, or nil.
local function refused_by_replica(key)
  local said = redis.pcall('HDEL', key, 'lock-core:none')
  return type(said) == 'table' and not string.find(said.err, 'WRONGTYPE', 1, true) and said or nil
end

-- The same for a script that only reads: nothing but a replica keeps it from that, since a user may lack the right to write.
local function read_from_replica(key)
  local refused = refused_by_replica(key)
  return refused and string.find(refused.err, 'READONLY', 1, true) and refused or nil
end

-- The reply of a script that ends for this reason. Up to Redis 6 the reason is a text that only the server turns into a reply.
local function refused(why)
  if type(why) == 'table' then return why end
  if string.find(why, '^%u+ ') then return {err = why} end
  error(why, 0)
end

