-- Helpers in front of every script that may grant the exclusive lock. `mint` stands before them.
--
-- The waiters hash holds, for each queued token, its ttl in ms, and for each client (the first 36
-- characters of its tokens) "<alive until, ms> <channel>". A client that polls has no channel.

-- Gives the lock to the first live waiter, and drops the dead ones in front of it. `asking` is a token
-- that is live because it is asking right now. Returns the token that holds the lock now and its
-- fencing token, or nil where nobody live waits.
-- The first write is one that a server short of memory still allows; after it, Redis lets a script finish.
local function grant_next(lock, queue, waiters, fence, gap, asking)
  local head = redis.call('LPOP', queue)
  if not head then return nil end
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  while head do
    local client = string.sub(head, 1, 36)
    local known = redis.call('HMGET', waiters, head, client)
    redis.call('HDEL', waiters, head)
    local ttl = known[1]
    local alive_until, channel = string.match(known[2] or '', '^(%d+) (.*)$')
    local live = ttl and (head == asking or (alive_until and tonumber(alive_until) > now))
    if live then
      local minted = mint(fence, gap)
      if head ~= asking and channel ~= '' then
        -- A refused PUBLISH (an ACL) is no sign of death: the waiter finds its grant when it refreshes.
        local reached = redis.pcall('PUBLISH', channel, 'granted ' .. head .. ' ' .. string.format('%.0f', minted) .. ' ' .. lock)
        live = reached ~= 0
      end
      if live then
        redis.call('SET', lock, head, 'PX', ttl)
        if redis.call('EXISTS', queue) == 0 then redis.call('DEL', waiters) end
        return head, minted
      end
    end
    head = redis.call('LPOP', queue)
  end
  redis.call('DEL', waiters)
  return nil
end

