-- Raises the fencing counter of this node, if the node has this vote. After that the node mints only larger fencing
-- tokens. If the vote belongs to another token, a raise would prove nothing: that vote may have an earlier fencing token.
--
-- KEYS  1 lock
-- ARGV  1 vote  2 minimum of the counter  3 the key of the counter
-- Returns 1 if the node has the vote and the counter has reached the minimum, else 0; {'unknown'} as acquire
--
-- Atomic, because the counter must not decrease, and the vote must not change in between.
if redis.call('EXISTS', ARGV[3]) == 0 then return {'unknown'} end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = tonumber(redis.call('GET', ARGV[3])) or 0
if last < tonumber(ARGV[2]) then redis.call('SET', ARGV[3], ARGV[2]) end
return 1
