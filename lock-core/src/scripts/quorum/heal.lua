-- Gives a holder that a majority has just confirmed the vote of a node that has lost it, or never gave it. Never over
-- the vote of another.
--
-- KEYS  1 lock
-- ARGV  1 token  2 ttl, ms
-- Returns 1 where the vote was free and is ours now, else 0
--
-- Atomic because SET NX is.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
