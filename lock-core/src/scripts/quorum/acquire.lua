-- One node's vote for a lock. A majority of such votes is the lock. Asking again with the same token repeats the vote.
--
-- KEYS  1 lock  2 queue  3 waiters  4 fence
-- ARGV  1 token  2 ttl, ms
--       3 '<try|wait> <alive for, ms> <push|poll>', by which of the two the client hears that the lock is free
--       4 how many fencing tokens are wanted; left out for one
-- Each argument costs a node as much as a command, so what only a lock that is not free needs is one of them, and the
-- client's channel, which follows from its token, is none.
-- Returns one of
--   n                         the vote is ours, and this is the first fencing token of it
--   {'busy', pttl, client}    it is this client's; with `wait` we are in the queue
--   {'foreign', kind}         the name is taken by something that is not a lock
--
-- Atomic because it is one script. What can be refused (no memory, a replica) is refused to INCRBY, the first write, since
-- a script does not roll back.
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, size = ARGV[1], ARGV[2], tonumber(ARGV[4] or 1)
local mode, alive_for, hears = string.match(ARGV[3], '^(%a+) (%d+) (%a+)$')
local client = string.sub(token, 1, ID)
local channel = hears == 'push' and CHANNELS .. client or ''

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', redis.call('TYPE', lock)['ok']}
end

-- Ours already: a request that is repeated, or a vote that is kept for us (see offer).
if not holder or holder == token then
  local minted = mint(fence, last, size)
  if type(minted) == 'table' then return minted end
  redis.call('SET', lock, token, 'PX', ttl)
  leave(queue, waiters, token)
  if channel ~= '' and redis.call('EXISTS', queue) == 1 then
    redis.pcall('PUBLISH', channel, 'contended ' .. token)
  end
  return minted
end

local pttl = redis.call('PTTL', lock)
if pttl == -1 then return {'foreign', 'string without a ttl'} end
if mode == 'wait' then
  -- A hash without its queue (evicted, deleted) is no place in it.
  local begins = redis.call('EXISTS', queue) == 0
  if begins then redis.call('DEL', waiters) end
  if redis.call('HSETNX', waiters, token, '1') == 1 then
    local pushed = redis.pcall('RPUSH', queue, token)
    -- A token without a place must not look as if it had one.
    if type(pushed) == 'table' then
      if begins then redis.call('DEL', waiters) else redis.call('HDEL', waiters, token) end
      return pushed
    end
  end
  local t = redis.call('TIME')
  local alive_until = t[1] * 1000 + math.floor(t[2] / 1000) + alive_for
  local kept = redis.pcall('HSET', waiters, client, string.format('%.0f', alive_until) .. ' ' .. channel)
  if type(kept) ~= 'table' then kept = redis.pcall('PEXPIRE', queue, QUEUE_TTL) end
  if type(kept) == 'table' then
    if begins then redis.call('DEL', queue, waiters) end
    return kept
  end
  redis.call('PEXPIRE', waiters, QUEUE_TTL)
  if redis.call('LINDEX', queue, 0) == token and redis.call('EXISTS', lock) == 1 then
    redis.pcall('PUBLISH', CHANNELS .. string.sub(holder, 1, ID), 'contended ' .. holder)
  end
end
return {'busy', pttl, string.sub(holder, 1, ID)}
