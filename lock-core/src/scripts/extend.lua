-- Renews many leases in one call.
--
-- KEYS  the locks
-- ARGV  for each lock: its token, its ttl in ms
-- Returns for each lock 1 where the token still held it and its ttl was set, else 0
--
-- Atomic per lock, which is all that is asked: a lease is only ever renewed by the token that holds it.
local renewed = {}
for i = 1, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  -- A list under our name is certainly not our token; a GET that was refused (an ACL) says nothing.
  if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  if holder == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[2 * i])
    renewed[i] = 1
  else
    renewed[i] = 0
  end
end
return renewed
