-- The state of a lock at this moment.
--
-- KEYS  1 lock  2 queue  3 waiters  4 fence
-- Returns {'free', waiters, queue, fence}, {'held', waiters, queue, fence, pttl, client id of the holder, the rest of its token}
-- or {'foreign', waiters, queue, fence, kind}. `queue` has those of the first 100 that live, as their tokens without the client ids;
-- `fence` is the counter.
--
-- Atomic because the holder, its ttl and the queue are read together.
local refusal = read_from_replica(KEYS[1])
if refusal then return refusal end
local waiting, queue = queued(KEYS[2], KEYS[3])
-- A user without this right sees less.
local fence = redis.pcall('GET', KEYS[4])
if not fence or type(fence) == 'table' then fence = '0' end

local holder = redis.pcall('GET', KEYS[1])
if not holder then return {'free', waiting, queue, fence} end
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', waiting, queue, fence, redis.call('TYPE', KEYS[1])['ok']}
end
local pttl = redis.call('PTTL', KEYS[1])
if pttl == -1 then return {'foreign', waiting, queue, fence, 'string without a ttl'} end
return {'held', waiting, queue, fence, pttl, string.sub(holder, 1, ID), string.sub(holder, ID + 2)}
