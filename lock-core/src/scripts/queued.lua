-- Who waits in a queue, for the scripts that show a lock. It is placed before them.

-- The number of waiters, and the first 100 as their tokens without the client ids. A client that was killed does not leave the queue.
-- So a waiter that no script would grant the lock is left out, of these 100. A user without these rights sees less.
local function queued(queue, waiters)
  local waiting, first = redis.call('LLEN', queue), redis.pcall('LRANGE', queue, 0, 99)
  local t, shown = redis.call('TIME'), {}
  for _, token in ipairs(first) do
    local known = redis.pcall('HMGET', waiters, string.sub(token, 1, ID))
    local alive_until = string.match(known[1] or '', '^%d+')
    if known.err or alive_until and tonumber(alive_until) > t[1] * 1000 + math.floor(t[2] / 1000) then
      shown[#shown + 1] = string.sub(token, ID + 2)
    else
      waiting = waiting - 1
    end
  end
  return waiting, shown
end

