-- Renews many leases in one call.
--
-- KEYS  the locks
-- ARGV  the token of each lock; then the number of each hold; then the ttl in ms: one for all of them, or one for each. 0 leaves a lease
--       as it is. A deadline never becomes earlier, since the call may come late from a broken connection, whatever the sign of the ttl
-- Returns the number of locks if each token held permits, and its lease was renewed; else for each lock 1 or 0
--
-- Atomic for each lock, which is enough. A member past its deadline is gone: a late renewal does not revive it. A member with an older
-- number is that of a reader, whose upgrade this server has lost: it does not count for the writer.
local renewed, all = {}, true
local ttl, each = ARGV[2 * #KEYS + 1], ARGV[2 * #KEYS + 2]
for i = 1, #KEYS do
  -- Also the write that a server short of memory allows: it then lets the script finish.
  local refused = refused_by_replica(KEYS[i])
  if refused then return refused end
  local known = redis.pcall('HMGET', KEYS[i], 'lock', ARGV[i])
  if known.err then
    if not string.find(known.err, 'WRONGTYPE', 1, true) then return known end
    known = {}
  end
  local ends, rest = string.match(known[2] or '', '^(%d+)( .*)$')
  local number = string.match(rest or '', '^ %d+ (%d+)')
  local before, lives, behind = string.match(known[1] or '', '^(%d+ )(%d+)( .*)$')
  if number and lives and tonumber(ends) > now and tonumber(number) >= tonumber(ARGV[#KEYS + i]) then
    local later = now + math.abs(each and ARGV[2 * #KEYS + i] or ttl)
    if later > tonumber(ends) then
      local fields = {ARGV[i], later .. rest}
      if later > tonumber(lives) then
        redis.call('PEXPIRE', KEYS[i], 2 * (later - now))
        fields[3], fields[4] = 'lock', before .. (2 * later - now) .. behind
      end
      redis.call('HSET', KEYS[i], unpack(fields))
    end
    renewed[i] = 1
  else
    renewed[i], all = 0, false
  end
end
return all and #KEYS or renewed
