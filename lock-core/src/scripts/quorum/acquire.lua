-- Requests the vote of one node for a lock. A token with the votes of a majority holds the lock. A repeated request of the
-- same token repeats the vote, for the longer of the two ttls and with its edition, unless that is earlier.
--
-- KEYS  1 lock  2 queue  3 waiters
-- ARGV  1 vote: the token with its edition  2 ttl, ms
--       3 '<try|wait> <alive for, ms> <push|poll> <ticket>': with push the node sends a message when the lock is free, with poll
--         the client repeats its request; the ticket is the time of the first request by the clock of the client, so that
--         the queues of all nodes have the same order
--       4 number of fencing tokens; 1 if left out
--       last: the key of the counter, with the boot of the node (see vet)
-- Each argument costs a node as much as a command. So the parts that only a held lock needs are one argument, and the channel of
-- the client is derived from its token.
-- Returns one of
--   {n, time}                 the token has the vote: the first of its fencing tokens, and the clock of the node, ms
--   {'busy', pttl, client, name}  the client with this id and name has the vote; with `wait` the token is in the queue
--   {'stale'}                 the token has a vote of a later edition
--   {'foreign', kind}         the key is not a lock
--   {'unknown'}               the node has no counter of this name: it has lost data, and a client has to vet it
--
-- Atomic, because it is one script. A script does not roll back, so INCRBY is the first write: a server without memory, or a
-- replica, refuses it.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local vote, ttl = ARGV[1], ARGV[2]
local token, edition = parts(vote)
local mode, alive_for, hears, ticket = string.match(ARGV[3], '^(%a+) (%d+) (%a+) (%d+)$')
local client = string.sub(token, 1, ID)
local channel = hears == 'push' and channel_of(token, queue) or ''

-- Maximum waiters that a waiter with an earlier ticket overtakes.
local LONGEST = 100

if not counts(last) then
  redis.call('DEL', fence)
  return {'unknown'}
end

local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', redis.call('TYPE', lock)['ok']}
end

-- The lock is free, or the token has the vote already: from an earlier request, or as an offer (see offer).
local held, of = parts(holder or vote)
if held == token and (of or 0) > edition then return {'stale'} end
if not holder or held == token then
  if type(last) == 'table' then return last end
  -- A delayed request must not shorten the lease of a later one.
  local lease = math.max(holder and redis.call('PTTL', lock) or 0, tonumber(ttl))
  if holder == vote then redis.call('PEXPIRE', lock, lease) else redis.call('SET', lock, vote, 'PX', lease) end
  leave(queue, waiters, token)
  if channel ~= '' and redis.call('EXISTS', queue) == 1 then
    redis.pcall('PUBLISH', channel, 'contended ' .. token)
  end
  return {last + 1 - size, clock()}
end

local pttl = redis.call('PTTL', lock)
if pttl == -1 then return {'foreign', 'string without a ttl'} end
if mode == 'wait' then
  -- A waiters hash without a queue (evicted, deleted) is stale.
  local begins = redis.call('EXISTS', queue) == 0
  if begins then redis.call('DEL', waiters) end
  if redis.call('HEXISTS', waiters, token) == 0 then
    -- Its place is behind all with an earlier ticket: usually at the end.
    local before
    for i = -1, -LONGEST, -1 do
      local other = redis.call('LINDEX', queue, i)
      if not other or tonumber(string.match(redis.call('HGET', waiters, other) or '', '^%d+') or 0) <= tonumber(ticket) then break end
      before = other
    end
    redis.call('HSET', waiters, token, ticket)
    local pushed
    if before then pushed = redis.pcall('LINSERT', queue, 'BEFORE', before, token) else pushed = redis.pcall('RPUSH', queue, token) end
    -- The waiters hash must not name a token without a place in the queue.
    if type(pushed) == 'table' then
      if begins then redis.call('DEL', waiters) else redis.call('HDEL', waiters, token) end
      return pushed
    end
  end
  local kept = redis.pcall('HSET', waiters, client, string.format('%.0f', clock() + alive_for) .. ' ' .. channel)
  if type(kept) ~= 'table' then kept = redis.pcall('PEXPIRE', queue, QUEUE_TTL) end
  if type(kept) == 'table' then
    if begins then redis.call('DEL', queue, waiters) end
    return kept
  end
  redis.call('PEXPIRE', waiters, QUEUE_TTL)
  if redis.call('LINDEX', queue, 0) == token and redis.call('EXISTS', lock) == 1 then
    redis.pcall('PUBLISH', channel_of(held, queue), 'contended ' .. held)
  end
end
return {'busy', pttl, string.sub(holder, 1, ID), name_in(holder)}
