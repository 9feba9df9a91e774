-- Releases the lock and asks for it again with another token of the same client, in one step: the waiting line of a process
-- hands the lock to the next process, and takes the last place of the queue.
--
-- KEYS  as acquire
-- ARGV  as acquire (3 is not read), and 7 the token to release
-- Returns a fencing token or 'queued' as acquire does, or {'lost'} if the token to release did not hold the lock; then nothing
--         was done
--
-- Atomic so that no newcomer comes in between. The first write is one that a server short of memory still allows. The waiting
-- processes learn of a grant only when this script has ended, so the script reads nothing that it knows: a waiter that is
-- granted the lock by a message has all of its ttl. The token is usually new. If its client has asked with it meanwhile, it has
-- a place already.
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, reserve = ARGV[1], ARGV[2], tonumber(ARGV[6])

local from = redis.pcall('GET', lock)
if type(from) == 'table' and not string.find(from.err, 'WRONGTYPE', 1, true) then return from end
if from ~= ARGV[7] then return {'lost'} end

local head = redis.call('LPOP', queue)
local grant, refusal = grant_first(lock, queue, waiters, fence, head, '', 0, ARGV[5], true)
if refusal then return refused(refusal) end
if not grant then
  local minted = mint(fence, reserve)
  redis.call('SET', lock, token, 'PX', ttl)
  return tonumber(minted)
end

-- The client has asked with this token meanwhile, and does not wait for this reply: it believes in the ttl of the message.
if grant.token == token then return tonumber(grant.minted) end

local client = string.sub(token, 1, ID)
-- A token with a place has a field for its client beside its own: if HSET adds only one field, that is the token. The time has
-- 13 digits, all of which a text keeps.
local alive_until = grant.now + ARGV[4]
local added = redis.call('HSET', waiters, token, ttl .. ' ' .. math.max(reserve, RESERVE), client, alive_until .. ' ' .. ARGV[5])
if added > 0 then
  local pushed = redis.pcall('RPUSH', queue, token)
  -- A token without a place must not look as if it had one.
  if type(pushed) == 'table' then
    if grant.others == 0 then redis.call('DEL', waiters) else redis.call('HDEL', waiters, token) end
    return pushed
  end
end
if grant.others == 0 then
  -- Longer than any waiter counts as alive, so that a queue of dead waiters expires by itself. Other waiters have set this ttl
  -- a few seconds ago. If it is refused, what begins here is removed, as the grant has removed the hash.
  local kept = redis.pcall('PEXPIRE', queue, QUEUE_TTL)
  if type(kept) == 'table' then
    redis.call('DEL', queue, waiters)
    return kept
  end
  redis.call('PEXPIRE', waiters, QUEUE_TTL)
end
local own = string.sub(grant.token, 1, ID) == client and grant.token or ''
return {'queued', grant.ttl, grant.last, own}
