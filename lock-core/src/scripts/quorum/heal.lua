-- Gives the vote of a node to a holder that a majority has just confirmed, if the node has lost that vote or never gave it.
-- Never takes the vote of another token, nor votes where the vote of another may have been forgotten (see `note` and `mint`).
--
-- KEYS  1 lock  2 fence
-- ARGV  1 token  2 ttl, ms
-- Returns 1 if the vote was free and is this token's now, else 0
--
-- Atomic because it is one script.
if not counts(tonumber(redis.pcall('GET', KEYS[2])) or 0) and wait(clock()) ~= 0 then return 0 end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
