-- Helpers in front of every script that may grant the exclusive lock. `mint` stands before them.
--
-- The waiters hash holds, for each queued token, "<ttl, ms> <spare>", and for each client (the first 36
-- characters of its tokens) "<alive until, ms> <channel>". A client that polls has no channel.

-- Gives the lock to the first live waiter, and drops the dead ones in front of it. `head` is who was taken off the queue last,
-- and `asking` a token that is live because it is asking right now, for `spare` fencing tokens beside the first; `joins` says
-- that somebody will queue behind in this same script; `caller` is the channel of the client that runs this, or ''. Returns
-- the token that holds the lock now, its fencing token and the last one that is its client's to give out, both as text, its
-- ttl, the time, and whether others are queued (0 or 1); or nil where nobody live waits. The first write, which is the one
-- that takes the head off, is one that a server short of memory still allows; after it, Redis lets a script finish.
local function grant_next(lock, queue, waiters, fence, head, asking, spare, caller, joins)
  if not head then return nil end
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  while head do
    local client = string.sub(head, 1, 36)
    local known = redis.call('HMGET', waiters, head, client)
    local others = redis.call('EXISTS', queue)
    -- Before anything that can still be refused: a token without a place must not look as if it had one.
    if others == 0 then redis.call('DEL', waiters) else redis.call('HDEL', waiters, head) end
    local ttl, wanted = string.match(known[1] or '', '^(%d+) (%d+)$')
    local alive_until, channel = string.match(known[2] or '', '^(%d+) (.*)$')
    local live = ttl and (head == asking or (alive_until and tonumber(alive_until) > now))
    if live then
      local contended = joins and 1 or others
      local minted, last = mint(fence, head == asking and spare or tonumber(wanted), t)
      if channel and channel ~= '' then
        local message = 'contended ' .. head
        if head ~= asking then
          message = 'granted ' .. head .. ' ' .. minted .. ' ' .. wanted .. ' ' .. contended .. ' ' .. lock
          -- The server writes first to the client that was given something to read last, and that would be the caller: it
          -- would wake up, and work, before the one that waits for the lock. So it is given something before.
          if caller ~= '' and caller ~= channel then redis.pcall('PUBLISH', caller, 'behind') end
          caller = ''
        end
        if head ~= asking or contended == 1 then
          -- A refused PUBLISH (an ACL) is no sign of death: the waiter finds its grant when it refreshes.
          local reached = redis.pcall('PUBLISH', channel, message)
          live = head == asking or reached ~= 0
        end
      end
      if live then
        redis.call('SET', lock, head, 'PX', ttl)
        return {
          token = head, minted = minted, last = last, ttl = tonumber(ttl), now = now, others = others,
        }
      end
    end
    head = redis.call('LPOP', queue)
  end
  return nil
end

