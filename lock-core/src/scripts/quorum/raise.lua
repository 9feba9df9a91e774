-- Raises the fencing counter of this node for whoever has its vote, so that it mints no token that is not larger. A vote
-- that is another's was perhaps minted before, and would be counted with the token that it had then: so raising the
-- counter here would prove nothing to us.
--
-- KEYS  1 lock  2 fence
-- ARGV  1 token  2 the least that the counter is to stand at
-- Returns 1 where the vote is this token's and the counter stands there now, else 0
--
-- Atomic because a counter must never go back, and the vote must not change in between.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if (tonumber(redis.call('GET', KEYS[2]) or 0) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2])
end
return 1
