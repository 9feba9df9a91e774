-- The state of a lock at this moment.
--
-- KEYS  1 lock  2 holds
-- Returns {'free'}, {'held', pttl, owner, count, name, fence} or {'foreign', kind}; `name` is the client that began the
-- tenure, and `fence` its fencing token: '' and '0' if that client has neither
--
-- Atomic because the owner, its count and the ttl are read together.
local refusal = read_from_replica(KEYS[1])
if refusal then return refusal end
local holder, count, known = holder_of(KEYS[1])
if not holder then return count or {'free'} end
local tenure = known and redis.pcall('HMGET', KEYS[2], 'owner', 'name', 'fence') or {}
if tenure.err or tenure[1] ~= holder then tenure = {} end
return {'held', redis.call('PTTL', KEYS[1]), holder, count, tenure[2] or '', tenure[3] or '0'}
