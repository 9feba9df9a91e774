-- Adds the vote of this node for a holder that a majority has just confirmed, if the node has no vote for this lock. It never takes
-- the vote of another token, and does not vote while the node may have forgotten the vote of another token (see vet).
--
-- KEYS  1 lock
-- ARGV  1 token  2 ttl, ms  3 the key of the counter
-- Returns 1 if the node had no vote and has voted for this token, else 0; {'unknown'} as acquire
--
-- Atomic, because it is one script.
if redis.call('EXISTS', ARGV[3]) == 0 then return {'unknown'} end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
