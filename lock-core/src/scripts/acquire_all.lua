-- Takes several locks, or none of them. A repeated request with the same tokens is the retry of a call whose reply was lost: what it
-- holds already is granted again.
--
-- KEYS  1..n the locks, then their n queues, then their n waiters, then the fence
-- ARGV  1 channel ('' if the client polls), then the n tokens, then the n ttls, ms
-- Returns one of
--   {n1, n2, ..}                granted, with these fencing tokens
--   {'busy', pttl, name, at}    the lock at this place is held by another token of the client with this name
--   {'foreign', kind, at}       the key at this place is not a lock
--
-- A free lock with a queue is granted to its first live waiter, as acquire does: a newcomer does not overtake, and dead waiters do not
-- keep the lock from it. The locks that are held are found before that, with nothing written.
--
-- Atomic because it is one script. A script does not roll back, so the first write is the step that a server short of memory refuses,
-- or one after which it lets the script finish. If a later step is refused (an ACL), the locks taken before it are given back.
local count, fence = (#KEYS - 1) / 3, KEYS[#KEYS]
local function of(i) return KEYS[i], KEYS[count + i], KEYS[2 * count + i], ARGV[1 + i], ARGV[1 + count + i] end

local ours = {}
-- All are free, and have no queue: the common case.
if redis.call('EXISTS', unpack(KEYS, 1, 2 * count)) > 0 then
  for i = 1, count do
    local lock, _, waiters, token = of(i)
    local holder = redis.pcall('GET', lock)
    if type(holder) == 'table' then
      if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
      return {'foreign', redis.call('TYPE', lock)['ok'], i}
    end
    ours[i] = holder == token
    if holder and not ours[i] then
      local pttl = redis.call('PTTL', lock)
      if pttl == -1 then return {'foreign', 'string without a ttl', i} end
      return refused_by_replica(waiters) or {'busy', pttl, name_in(holder), i}
    end
  end
  for i = 1, count do
    local lock, queue, waiters, _, ttl = of(i)
    if ours[i] then
      -- Never shorter, as acquire does it.
      redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), tonumber(ttl)))
    else
      local head = redis.call('LPOP', queue)
      local grant, refusal = grant_first(lock, queue, waiters, fence, head, '', 0, ARGV[1])
      if refusal then return refused(refusal) end
      if grant then return {'busy', grant.ttl, name_in(grant.token), i} end
    end
  end
end

-- Before the locks, because it may be refused. One call mints all tokens, unless the counter is too far ahead of the clock.
local tokens, next_token, left = {}, nil, 0
for i = 1, count do
  if left > 0 then
    next_token, left = next_token + 1, left - 1
  else
    local minted, _, reserve = mint(fence, count - i)
    next_token, left = tonumber(minted), reserve
  end
  tokens[i] = next_token
end
for i = 1, count do
  local lock, _, _, token, ttl = of(i)
  local set = not ours[i] and redis.pcall('SET', lock, token, 'PX', ttl)
  if set and set.err then
    for taken = 1, i - 1 do
      if not ours[taken] then redis.pcall('DEL', KEYS[taken]) end
    end
    return set
  end
end
return tokens
