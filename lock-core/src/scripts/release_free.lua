-- Releases a lock of ours that nobody queues for. In front of everything else of release, whose header says what
-- KEYS, ARGV and the reply are: the common case pays for none of the functions defined there. Leaves behind who holds the lock
-- and, where that is us, the `head` that it has taken off the queue.
local holder, head = redis.pcall('GET', KEYS[1]), nil
if holder == ARGV[1] then
  -- The first write is one that a server short of memory still allows.
  head = redis.call('LPOP', KEYS[2])
  if not head then
    redis.call('DEL', KEYS[1], KEYS[3])
    return 1
  end
end

