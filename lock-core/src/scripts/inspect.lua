-- The state of a lock at this moment.
--
-- KEYS  1 lock  2 queue
-- Returns {'free', waiters}, {'held', waiters, pttl, client id of the holder} or {'foreign', waiters, kind}
--
-- Atomic because the holder, its ttl and the queue are read together.
local waiting = redis.call('LLEN', KEYS[2])
local holder = redis.pcall('GET', KEYS[1])
if not holder then return {'free', waiting} end
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', waiting, redis.call('TYPE', KEYS[1])['ok']}
end
local pttl = redis.call('PTTL', KEYS[1])
if pttl == -1 then return {'foreign', waiting, 'string without a ttl'} end
return {'held', waiting, pttl, string.sub(holder, 1, ID)}
