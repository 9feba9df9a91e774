-- Releases the vote for a lock without a queue. It is placed before the rest of release, whose header describes KEYS, ARGV and the
-- reply, so that the common case does not define the functions of that part. A waiters hash without a queue is stale, and expires.
if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end

