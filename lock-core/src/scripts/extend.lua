-- Renews many leases in one call.
--
-- KEYS  the locks
-- ARGV  the token of each lock; then the ttl in ms: one for all of them, or one for each; 0 leaves a lease as long as it is
-- Returns how many locks there are where each was still held by its token, and its ttl was set; else for each 1 where it was,
-- and 0 where not
--
-- Atomic per lock, which is all that is asked: a lease is only ever renewed by the token that holds it.
local renewed, all = {}, true
local ttl, each = ARGV[#KEYS + 1], ARGV[#KEYS + 2]
for i = 1, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  -- A list under our name is certainly not our token; a GET that was refused (an ACL) says nothing.
  if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  if holder == ARGV[i] then
    local lease = tonumber(each and ARGV[#KEYS + i] or ttl)
    -- Written also where nothing changes: a replica must refuse.
    if lease == 0 then lease = redis.call('PTTL', KEYS[i]) end
    if lease > 0 then redis.call('PEXPIRE', KEYS[i], lease) end
    renewed[i] = 1
  else
    renewed[i] = 0
    all = false
  end
end
return all and #KEYS or renewed
