-- Adds the vote of this node for a holder that a majority has just confirmed, if the node has no vote for this lock. It never takes
-- the vote of another token, and does not vote while the node may have forgotten the vote of another token (see `note` and `mint`).
--
-- KEYS  1 lock  2 fence
-- ARGV  1 token  2 ttl, ms
-- Returns 1 if the node had no vote and has voted for this token, else 0
--
-- Atomic, because it is one script.
if not counts(tonumber(redis.pcall('GET', KEYS[2])) or 0) and wait(clock()) ~= 0 then return 0 end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
