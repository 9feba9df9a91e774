-- Renews many leases in one call.
--
-- KEYS  the locks
-- ARGV  the token of each lock; then the ttl in ms: one for all of them, or one for each. 0 leaves a lease as it is. A lease never
--       ends earlier than before, since the call may come late from a broken connection, unless the ttl has a minus
-- Returns the number of locks if each was still held by its token, and its ttl was set; else for each lock 1 if it was held
-- by its token, 0 if not
--
-- Atomic for each lock, which is enough: only the token that holds a lease renews it.
local renewed, all = {}, true
local ttl, each = ARGV[#KEYS + 1], ARGV[#KEYS + 2]
for i = 1, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  -- A key of another type is certainly not held by this token. A GET that was refused (an ACL) proves nothing.
  if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  if holder == ARGV[i] then
    local lease = tonumber(each and ARGV[#KEYS + i] or ttl)
    -- Written even if nothing changes: a replica must refuse.
    lease = lease < 0 and -lease or math.max(lease, redis.call('PTTL', KEYS[i]))
    if lease > 0 then redis.call('PEXPIRE', KEYS[i], lease) end
    renewed[i] = 1
  else
    local refused = refused_by_replica(KEYS[i])
    if refused then return refused end
    renewed[i] = 0
    all = false
  end
end
return all and #KEYS or renewed
