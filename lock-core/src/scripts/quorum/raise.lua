-- Raises the fencing counter of this node for a token that has its vote, so that the node mints only larger tokens. Raising the
-- counter of a node whose vote belongs to another token proves nothing: that vote may carry a fencing token minted earlier.
-- A node without a counter gives no votes (see note), and gets none here.
--
-- KEYS  1 lock  2 fence
-- ARGV  1 token  2 minimum of the counter
-- Returns 1 if the vote is this token's and the counter has reached the minimum, else 0
--
-- Atomic because a counter must never go back, and the vote must not change in between.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = tonumber(redis.call('GET', KEYS[2]) or 0) or 0
if last < 1e15 then return 0 end
if last < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return 1
