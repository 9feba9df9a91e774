-- Releases a lock that the token holds and that has no queue. In front of the rest of release, whose header describes KEYS,
-- ARGV and the reply: the common case does not pay for the functions that are defined there. It leaves the holder in `holder`
-- and, if that is the token, in `head` the token that it has taken off the queue.
local holder, head = redis.pcall('GET', KEYS[1]), nil
if holder == ARGV[1] then
  -- The first write is one that a server short of memory still allows.
  head = redis.pcall('LPOP', KEYS[2])
  if type(head) == 'table' then
    -- Data of another type are no queue, and keep no release from its lock.
    if not string.find(head.err, 'WRONGTYPE', 1, true) then return head end
    head = false
  end
  if not head then
    redis.call('DEL', KEYS[1], KEYS[3])
    return 1
  end
end

