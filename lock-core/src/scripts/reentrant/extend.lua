-- Renews many leases in one call.
--
-- KEYS  for each lease: the lock, its holds
-- ARGV  for each lease: owner, token, ttl in ms
-- Returns the number of leases if in each the owner held the lock and this acquisition was counted; else for each lease 1 if
-- that was so, 0 if not
--
-- The token is compared too: the same owner may hold the lock again, in a tenure that does not include this acquisition.
--
-- Atomic for each lock, which is enough: only its owner renews a lease.
local renewed, all, now = {}, true, nil
for i = 1, #KEYS / 2 do
  local lock, holds = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, token, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  -- A key of another type is certainly not held by this owner. A call that was refused (an ACL) proves nothing.
  local held = redis.pcall('HMGET', lock, owner, TENURE)
  if held.err and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  local counted = held[1] and held[2] and redis.pcall('HMGET', holds, token, 'clients') or {}
  if counted.err and not string.find(counted.err, 'WRONGTYPE', 1, true) then return counted end
  if counted[1] then
    -- First, because a server short of memory allows it, and refuses the next write.
    local refused = prolong(lock, holds, ttl)
    if refused then return refused end
    if counted[2] and ttl > 0 then
      now = now or now_ms()
      refused = stay(holds, clients_of(counted[2]), owner, token, ttl, now)
      if refused then return refused end
    end
    renewed[i] = 1
  else
    local refused = refused_by_replica(lock)
    if refused then return refused end
    renewed[i] = 0
    all = false
  end
end
return all and #renewed or renewed
