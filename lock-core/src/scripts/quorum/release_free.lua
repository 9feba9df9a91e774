-- Takes back the vote for a lock that has no queue. In front of the rest of release, whose header describes KEYS, ARGV and the
-- reply: the common case does not pay for the functions that are defined there. A waiters hash without a queue is stale, and
-- expires by itself.
if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

