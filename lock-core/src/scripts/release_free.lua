-- Releases a lock that the token holds and that has no queue. In front of the rest of release, whose header describes KEYS,
-- ARGV and the reply: the common case does not pay for the functions that are defined there. It leaves the holder in `holder`
-- and, if that is the token, in `head` the token that it has taken off the queue.
local holder, head = redis.pcall('GET', KEYS[1]), nil
if holder == ARGV[1] then
  -- The first write is one that a server short of memory still allows.
  head = redis.call('LPOP', KEYS[2])
  if not head then
    redis.call('DEL', KEYS[1], KEYS[3])
    return 1
  end
end

