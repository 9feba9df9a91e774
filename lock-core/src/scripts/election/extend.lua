-- Renews the leases of leaders, and their records.
--
-- KEYS  for each, 1 lock  2 leader, which is also the name of the channel
-- ARGV  for each, 1 token  2 ttl in ms, as of extend  3 term, 0 if only the lease is asked for  4 value
-- Returns for each 1 if the lock was still held by its token, 0 if not, or a text: held, and not named as the leader, for this reason
--
-- Atomic for each lock, as extend.
local renewed = {}
for i = 1, #KEYS / 2 do
  local lock, leader = KEYS[2 * i - 1], KEYS[2 * i]
  local token, ttl, term, value = unpack(ARGV, 4 * i - 3, 4 * i)
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  if holder == token then
    local left, lease = redis.call('PTTL', lock), tonumber(ttl)
    lease = lease < 0 and -lease or math.max(lease, left)
    -- First, because a server short of memory allows it, and then lets the script finish.
    if lease > 0 then redis.call('PEXPIRE', lock, lease) end
    renewed[i] = term ~= '0' and lead(leader, token, term, value, math.max(lease, 1)) or 1
  else
    local refused = refused_by_replica(lock)
    if refused then return refused end
    renewed[i] = 0
  end
end
return renewed
