-- Notifies the first live waiter that the lock is free on this node, and reserves the vote of the node for it: an offer. OFFER, its
-- ttl, is long enough for a message and a request on a busy machine, and short enough for a waiter that does not answer. The
-- other nodes do the same, so the first waiter usually gets a majority. If their queues differ, the offers expire.
--
-- The waiters hash has one field for each queued token, its ticket, and one for each client (the first 36 characters of its tokens),
-- "<alive until, ms> <channel>".
local function offer(lock, queue, waiters)
  local head = redis.call('LINDEX', queue, 0)
  if not head then return end
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  while head do
    local known = redis.call('HMGET', waiters, head, string.sub(head, 1, ID))
    local alive_until, channel = string.match(known[2] or '', '^(%d+) (%S*)')
    if known[1] and alive_until and tonumber(alive_until) > now then
      -- A client that polls finds the offer by polling. If PUBLISH is refused (an ACL), the waiter may still live.
      if channel == '' or redis.pcall('PUBLISH', channel, 'free ' .. head) ~= 0 then
        redis.call('SET', lock, head .. '{0}', 'PX', OFFER)
        return
      end
    end
    redis.call('LPOP', queue)
    redis.call('HDEL', waiters, head)
    head = redis.call('LINDEX', queue, 0)
  end
  redis.call('DEL', waiters)
end

-- Removes a token from the queue. True if it was queued.
local function leave(queue, waiters, token)
  if redis.call('HDEL', waiters, token) == 0 then return false end
  redis.call('LREM', queue, 1, token)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', waiters) end
  return true
end

