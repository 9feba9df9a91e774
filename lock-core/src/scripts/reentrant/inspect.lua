-- The state of a lock at this moment.
--
-- KEYS  1 lock
-- Returns {'free'}, {'held', pttl, owner, count} or {'foreign', kind}; a pttl of -1 is a lease without an end
--
-- Atomic because the owner, its count and the ttl are read together.
local holder, count = holder_of(KEYS[1])
if holder then return {'held', redis.call('PTTL', KEYS[1]), holder, count} end
return count or {'free'}
