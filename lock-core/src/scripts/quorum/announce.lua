-- Names the leader of an election on a node, and tells those who observe: a vote cannot, since only a majority decides the term. With
-- each renewal, so that the record lasts as long as the vote. Without a value: the leader has released the lock.
--
-- KEYS  1 lock  2 leader, which is also the name of the channel
-- ARGV  1 vote  2 term  3 value
-- Returns 1 if the lock has this vote, or there was no record of another leader; else 0
--
-- Atomic, so that a late call of an earlier leader writes nothing.
local lock, leader = KEYS[1], KEYS[2]
local token = parts(ARGV[1])
local known = redis.pcall('GET', leader)
if not ARGV[2] then
  local own = type(known) == 'string' and string.sub(known, 1, #token + 1) == token .. ' '
  -- The record of the next leader stays. That one has told the observers. Without a record (a server that has lost its data) they may
  -- not know yet.
  if known and not own then return 0 end
  if own then redis.call('DEL', leader) end
  redis.pcall('PUBLISH', leader, '0')
  return 1
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
if holder ~= ARGV[1] then return refused_by_replica(leader) or 0 end
-- A client that knows the token could release the lock, so the record with it is compared on the server, and no reply has it.
local record = token .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
local lease = math.max(redis.call('PTTL', lock), 1)
-- What is there is prolonged, which a server short of memory allows.
if known == record then
  redis.call('PEXPIRE', leader, lease)
else
  redis.call('SET', leader, record, 'PX', lease)
  redis.pcall('PUBLISH', leader, '0')
end
return 1
