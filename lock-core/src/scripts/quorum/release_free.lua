-- Takes back the vote for a lock that nobody queues for. In front of everything else of release, whose header says what
-- KEYS, ARGV and the reply are: the common case pays for none of the functions defined there.
-- What may be left of the waiters without a queue is no place in one, and ends by itself.
if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

