-- Takes the lock, or reports its holder, or joins the queue. A repeated request with the same token is the refresh of a waiter,
-- or the retry of a call whose reply was lost: it never takes a second place.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters; of an election 5 leader
-- ARGV  1 token  2 ttl, ms  3 '<try|wait> <alive for, ms> <channel>', no channel if the client polls
--       4 number of reserved tokens that the client requests; a queued waiter gets at least 7, since other waiters may join
--         its process before the grant
--       5 of an election, the value of the candidate
-- The brief form ends before 4. It requests no reserved tokens, and the server of its connection has minted by its clock a moment ago:
-- so its token is the counter + 1.
-- Returns one of
--   n                                   granted, with this fencing token and all reserved tokens behind it
--   {n, reserve}                        granted, with `reserve` reserved tokens behind n
--   {'busy', pttl, name}                held by another token of the client with this name, and the mode is try
--   {'queued', pttl, last, own, name}   the token is queued; every later grant mints above `last`; `own` is the holder if
--                                       the holder is a token of the same client, else ''; the name of the holder's client
--   {'foreign', kind}                   the key is not a lock
--
-- Atomic because it is one script. A script does not roll back, so the step that a server short of memory refuses is always the
-- first write. Any other refused step (an ACL) leaves the queue as it was, and no key without a ttl.
local lock, queue, fence, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, reserve = ARGV[1], ARGV[2], tonumber(ARGV[4] or 0)
local mode, alive_for, channel = string.match(ARGV[3], '^(%a+) (%d+) (.*)$')

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', redis.call('TYPE', lock)['ok']}
end
if holder == token then
  -- First, because a server short of memory allows it, and then lets the script finish. Never shorter: a delayed request may be
  -- older than the grant that its client relies on.
  local lease = math.max(redis.call('PTTL', lock), tonumber(ttl))
  redis.call('PEXPIRE', lock, lease)
  -- A leader keeps the term that others have seen.
  local term = lead and term_of(KEYS[5], token)
  if term then return tonumber(term) end
  local minted, _, reserved = mint(fence, reserve)
  if lead then lead(KEYS[5], token, minted, ARGV[5], lease) end
  return granted(minted, reserved, reserve)
end

if not holder then
  -- The lease of the last holder has ended: the first waiter is next, and a newcomer does not overtake the queue.
  local head = redis.call('LPOP', queue)
  local grant, refusal = grant_first(lock, queue, waiters, fence, head, token, reserve, channel)
  if refusal then return refused(refusal) end
  if not grant then
    local minted, _, reserved = mint(fence, reserve)
    redis.call('SET', lock, token, 'PX', ttl)
    if lead then lead(KEYS[5], token, minted, ARGV[5], ttl) end
    return granted(minted, reserved, reserve)
  end
  holder = grant.token
  if holder == token then
    -- The queue knows the ttl of an earlier request.
    if grant.ttl ~= tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
    return granted(grant.minted, grant.reserve, reserve)
  end
end

local pttl = redis.call('PTTL', lock)
if pttl == -1 then return {'foreign', 'string without a ttl'} end
if mode == 'try' then return refused_by_replica(lock) or {'busy', pttl, name_in(holder)} end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- A waiters hash without its queue (evicted, deleted) is stale.
local begins = redis.call('EXISTS', queue) == 0
if begins then redis.call('DEL', waiters) end
local wanted = math.max(reserve, RESERVE)
if lead then wanted = wanted .. ' ' .. ARGV[5] end
local refusal = enqueue(queue, waiters, begins, token, ttl, wanted, now, alive_for, channel)
if refusal then return refusal end
local own = ''
if string.sub(holder, 1, ID) == string.sub(token, 1, ID) then
  own = holder
elseif redis.call('LINDEX', queue, 0) == token then
  -- Each request of the first waiter notifies the holder's client that the lock is contended: an earlier message may be lost.
  redis.pcall('PUBLISH', channel_of(holder, queue), 'contended ' .. holder)
end
-- A value that is not a counter is replaced by the next grant.
local last = redis.pcall('GET', fence)
last = type(last) == 'string' and string.match(last, '^%d+$') or '0'
return {'queued', pttl, last, own, name_in(holder)}
