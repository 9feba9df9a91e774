-- Helpers for every script that may grant the exclusive lock. They are placed before the script, and `mint` before them.
--
-- The waiters hash has one field for each queued token, "<ttl, ms> <reserve>" (and the value of a candidate, behind a space), and one for each client (the first 36 characters
-- of its tokens), "<alive until, ms> <channel>". The channel of a client that polls is empty.

-- The token that was taken off the queue last and has no lock yet, and the fields of the token and its client in
-- the waiters hash.
local off, said

-- Grants the lock to the first live waiter, and drops the dead ones in front of it.
--   head     the token that was taken off the queue last
--   asking   the token of the current request, which is live, and requests `reserve` reserved tokens
--   caller   the channel of the client that runs this script, or ''
--   joins    whether a waiter will join the queue later in this script
-- Returns the holder, its fencing token and the last of its reserved tokens, both as text, its ttl, the time, and whether
-- others are queued (0 or 1); nil without a live waiter. The first write takes the head off the queue, which a server short of
-- memory still allows. After it, Redis lets a script finish.
local function grant_next(lock, queue, waiters, fence, head, asking, reserve, caller, joins)
  off, said = head, nil
  if not head then return nil end
  -- In a cluster the counter is one of the slot. There each node passes a message on to its clients, so a waiter may receive what is
  -- published here although PUBLISH, which counts the clients of this node, counts none.
  local in_cluster = string.sub(fence, -1) == '}'
  if in_cluster then caller = '' end
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  while head do
    off, said = head, nil
    local client = string.sub(head, 1, ID)
    local known = redis.call('HMGET', waiters, head, client)
    said = known
    local others = redis.call('EXISTS', queue)
    -- Before any step that may be refused: the waiters hash must not name a token without a place in the queue.
    if others == 0 then redis.call('DEL', waiters) else redis.call('HDEL', waiters, head) end
    local ttl, wanted = string.match(known[1] or '', '^(%d+) (%d+)')
    local alive_until, channel = string.match(known[2] or '', '^(%d+) (%S*)')
    local live = ttl and (head == asking or (alive_until and tonumber(alive_until) > now))
    if live and in_cluster and head ~= asking and channel ~= '' then
      local here = redis.pcall('PUBSUB', 'NUMSUB', channel)
      if here[2] == 0 then
        -- Dead, or not connected to the node to which the slot has moved: then it asks again there.
        redis.pcall('PUBLISH', channel, 'free ' .. head)
        live = false
      end
    end
    if live then
      local contended = joins and 1 or others
      local minted, last, reserved = mint(fence, head == asking and reserve or tonumber(wanted), t)
      -- Before the message, because SET may be refused. If the message reaches no client, the next waiter or the caller gets the
      -- lock.
      local lease = tonumber(ttl)
      if head ~= asking and channel == '' then
        -- A client that polls shows only by its requests that it lives. It gets the lock until it would count as dead.
        lease = math.min(lease, tonumber(alive_until) - now)
      end
      redis.call('SET', lock, head, 'PX', lease)
      if lead then lead(KEYS[5], head, minted, string.match(known[1], '^%d+ %d+ (.*)$'), lease) end
      if channel and channel ~= '' then
        local message = 'contended ' .. head
        if head ~= asking then
          message = 'granted ' .. head .. ' ' .. minted .. ' ' .. reserved .. ' ' .. contended .. ' ' .. ttl
            .. ' ' .. lock
          -- The server writes first to the client whose output it queued last. That would be the caller, which would then run
          -- before the new holder. A message to the caller before the grant reverses this order.
          if caller ~= '' and caller ~= channel then redis.pcall('PUBLISH', caller, 'behind') end
          caller = ''
        end
        if head ~= asking or contended == 1 then
          -- If PUBLISH is refused (an ACL), the waiter may still live: it finds its grant with its next refresh.
          local reached = redis.pcall('PUBLISH', channel, message)
          live = head == asking or in_cluster or reached ~= 0
        end
      end
      if live then
        if lease < tonumber(ttl) and contended == 1 then
          -- The waiter polls, and its lease is shorter than its ttl. The first waiter behind it that does not poll is notified: it
          -- sends a request, and learns the end of that lease. Only 8 are looked at: the others learn it with their next refresh.
          for at = 0, 7 do
            local behind = redis.call('LINDEX', queue, at)
            if not behind then break end
            local of = redis.call('HMGET', waiters, string.sub(behind, 1, ID))
            local hears = string.match(of[1] or '', '^%d+ (%S+)')
            if hears then
              redis.pcall('PUBLISH', hears, 'free ' .. behind)
              break
            end
          end
        end
        return {
          token = head, minted = minted, last = last, reserve = reserved, ttl = lease, now = now, others = others,
        }
      end
    end
    off = nil
    head = redis.call('LPOP', queue)
  end
  return nil
end

-- As grant_next. If a step is refused (an ACL), the waiter returns to the front of the queue, by commands that a queue needs
-- anyway, and the reason is the second result. Other waiters have given the queue its ttl. If the queue would stay without a
-- ttl, the waiter is not put back, and joins again with its refresh.
local function grant_first(lock, queue, waiters, ...)
  local done, grant = pcall(grant_next, lock, queue, waiters, ...)
  if done then return grant end
  if not off then return nil, grant end
  local waiting = redis.pcall('RPUSH', queue, off)
  if type(waiting) == 'table' then
    -- A queue that ended here, in a slot of a cluster that is moving, begins on the other node: the waiter asks again.
    local channel = string.match(said and said[2] or '', '^%d+ (%S+)')
    if channel then redis.pcall('PUBLISH', channel, 'free ' .. off) end
    return nil, grant
  end
  if waiting == 1 and type(redis.pcall('PEXPIRE', queue, QUEUE_TTL)) == 'table' then
    redis.call('LPOP', queue)
    return nil, grant
  end
  for _ = 2, waiting do
    redis.call('RPUSH', queue, redis.call('LPOP', queue))
  end
  if said and said[1] and said[2] then
    redis.call('HSET', waiters, off, said[1], string.sub(off, 1, ID), said[2])
  end
  if waiting == 1 then redis.call('PEXPIRE', waiters, QUEUE_TTL) end
  return nil, grant
end
