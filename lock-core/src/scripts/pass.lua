-- Releases the lock and requests it again with another token of the same client, in one step: the waiting line of a process
-- hands the lock to the next process, and takes the last place of the queue.
--
-- KEYS  as acquire
-- ARGV  as acquire (the mode is not read), and 5 the token to release
-- Returns a grant or 'queued' as acquire does, or {'lost'} if the token to release did not hold the lock; then nothing
--         was done
--
-- Atomic, so that no newcomer acquires the lock in between. A server short of memory still allows the first write. The waiting
-- processes learn of a grant only when this script has ended, so the script reads nothing that it can derive: a lock granted
-- by a message has the full ttl of its waiter. The token is usually new. If its client has requested the lock with it
-- meanwhile, it has a place already.
local lock, queue, fence, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, reserve = ARGV[1], ARGV[2], tonumber(ARGV[4])
local alive_for, channel = string.match(ARGV[3], '^%a+ (%d+) (.*)$')

local from = redis.pcall('GET', lock)
if type(from) == 'table' and not string.find(from.err, 'WRONGTYPE', 1, true) then return from end
if from ~= ARGV[5] then return refused_by_replica(waiters) or {'lost'} end

local head = redis.call('LPOP', queue)
local grant, refusal = grant_first(lock, queue, waiters, fence, head, '', 0, channel, true)
if refusal then return refused(refusal) end
if not grant then
  local minted, _, reserved = mint(fence, reserve)
  redis.call('SET', lock, token, 'PX', ttl)
  return granted(minted, reserved, reserve)
end

-- The client has requested the lock with this token meanwhile. It does not wait for this reply: it uses the ttl of the message.
if grant.token == token then return granted(grant.minted, grant.reserve, reserve) end

local refusal = enqueue(queue, waiters, grant.others == 0, token, ttl, math.max(reserve, RESERVE), grant.now, alive_for, channel)
if refusal then return refusal end
local own = string.sub(grant.token, 1, ID) == string.sub(token, 1, ID) and grant.token or ''
return {'queued', grant.ttl, grant.last, own, name_in(grant.token)}
