-- Gives a token the last place in the queue, or keeps the place that it has, for a client that counts as alive for `alive_for`
-- milliseconds from `now`. Stores `wanted` beside the ttl. `begins` tells whether there is no queue so far. Returns the error of a
-- step that an ACL refuses. A queue that began here is then removed, only with commands that the ACL has just allowed. In an older queue
-- the token may stay, like that of a waiter that has died.
local function enqueue(queue, waiters, begins, token, ttl, wanted, now, alive_for, channel)
  if redis.call('HSET', waiters, token, ttl .. ' ' .. wanted) == 1 then
    local pushed = redis.pcall('RPUSH', queue, token)
    -- The waiters hash must not name a token without a place in the queue.
    if type(pushed) == 'table' then
      if begins then redis.call('DEL', waiters) else redis.call('HDEL', waiters, token) end
      return pushed
    end
  end
  -- Lua prints 14 digits of a number. A time in ms has 13, so its text is exact.
  redis.call('HSET', waiters, string.sub(token, 1, ID), (now + alive_for) .. ' ' .. channel)
  local kept = redis.pcall('PEXPIRE', queue, QUEUE_TTL)
  if type(kept) == 'table' then
    if begins then redis.call('DEL', queue, waiters) end
    return kept
  end
  redis.call('PEXPIRE', waiters, QUEUE_TTL)
  -- The fields of clients that have left stay while the queue exists. They are removed rarely, and all at once.
  if redis.call('HLEN', waiters) > 2 * redis.call('LLEN', queue) + 100 then
    local fields = redis.pcall('HGETALL', waiters)
    for i = 1, #fields, 2 do
      local seen = #fields[i] == ID and string.match(fields[i + 1], '^(%d+) ')
      if seen and tonumber(seen) < now then redis.call('HDEL', waiters, fields[i]) end
    end
  end
end

