-- Lets go of the lock and asks for it again with another token of the same client, in one step: the line of
-- a process hands the lock to the next process and takes the last place of the queue.
--
-- KEYS  as acquire
-- ARGV  as acquire (3 is not read), and 7 the token that lets go
-- Returns a fencing token or 'queued' as acquire does, or {'lost'} where that token did not hold the lock; then nothing was
--         asked
--
-- Atomic so that no newcomer comes in between. The first write is one that a server short of memory still allows. Every
-- process that waits hears of its grant when this has ended, so nothing is asked for that is known: a waiter that is
-- granted the lock by a message has all of its ttl. The token is new, as a rule; where its client has asked with it
-- meanwhile, it has a place already.
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

-- Its client has asked with it meanwhile, and waits for no answer of ours: it believes the ttl that the message names.
if grant.token == token then return tonumber(grant.minted) end

local client = string.sub(token, 1, ID)
-- Whoever has a place has a field for its client beside it: where only one of the two is new, that is the token. The time has
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
  -- Longer than any waiter is believed alive, so that a queue of dead waiters vanishes by itself. Others who wait have done
  -- this a few seconds ago. Where it is refused, what begins here is removed as the grant has removed the hash.
  local kept = redis.pcall('PEXPIRE', queue, QUEUE_TTL)
  if type(kept) == 'table' then
    redis.call('DEL', queue, waiters)
    return kept
  end
  redis.call('PEXPIRE', waiters, QUEUE_TTL)
end
local own = string.sub(grant.token, 1, ID) == client and grant.token or ''
return {'queued', grant.ttl, grant.last, own}
