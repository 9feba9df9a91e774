-- Takes the lock from its owner, however often it is held; tells the clients whose acquisitions were counted,
-- and announces that it is free.
--
-- KEYS  1 lock  2 holds  3 channel
-- ARGV  1 publish command  2 prefix of the clients' channels
-- Returns 1 taken away, 0 nobody held it, {'foreign', kind} the name is no lock and was left alone
--
-- Atomic so that those who are told are the ones that lost the lock.
local lock, holds = KEYS[1], KEYS[2]
local holder, foreign = holder_of(lock)
if not holder then return foreign or 0 end

-- Holds of another type tell of nobody. Refused as the others are, before anything is written: an ACL.
local of = redis.pcall('HGET', holds, 'owner')
if type(of) == 'table' and not string.find(of.err, 'WRONGTYPE', 1, true) then return of end
local counted = of == holder and redis.call('HKEYS', holds) or {}
redis.call('DEL', lock, holds)
for _, token in ipairs(counted) do
  local client = string.match(token, '^(' .. string.rep('.', ID) .. '):%d+$')
  if client then redis.pcall('PUBLISH', ARGV[2] .. client, 'revoked ' .. token) end
end
redis.pcall(ARGV[1], KEYS[3], '0')
return 1
