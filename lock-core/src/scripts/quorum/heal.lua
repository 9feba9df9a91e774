-- Adds the vote of this node for a holder that has a majority, if the node has no vote for this lock, or an earlier one of the same
-- token. It never takes the vote of another token, and does not vote while the node may have forgotten one (see vet).
--
-- KEYS  1 lock
-- ARGV  1 vote  2 ttl, ms  3 the key of the counter
-- Returns 1 if the node has voted, also before (then the end of the vote stays), else 0; {'unknown'} as acquire
--
-- Atomic, because it is one script.
if redis.call('EXISTS', ARGV[3]) == 0 then return {'unknown'} end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
local holder = redis.pcall('GET', KEYS[1])
if type(holder) ~= 'string' then return 0 end
local token, edition = parts(ARGV[1])
local held, of = parts(holder)
if held ~= token or not of or of > edition then return 0 end
if of == edition then return 1 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
