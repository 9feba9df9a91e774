-- Raises the fencing counter of this node, if the node has voted for this token. After that the node mints only larger fencing
-- tokens. If the vote belongs to another token, a raise would prove nothing: that vote may have an earlier fencing token. A node
-- without a valid counter does not vote (see note), and its counter is not raised.
--
-- KEYS  1 lock  2 fence
-- ARGV  1 token  2 minimum of the counter
-- Returns 1 if the token has the vote and the counter has reached the minimum, else 0
--
-- Atomic, because the counter must not decrease, and the vote must not change in between.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
if last < 1e15 then return 0 end
if last < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return 1
