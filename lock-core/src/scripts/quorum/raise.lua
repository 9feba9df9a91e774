-- Raises the fencing counter of this node, so that it mints no token that is not larger.
--
-- KEYS  1 fence
-- ARGV  1 the least that the counter is to stand at
-- Returns 1
--
-- Atomic because a counter must never go back.
if (tonumber(redis.call('GET', KEYS[1]) or 0) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
