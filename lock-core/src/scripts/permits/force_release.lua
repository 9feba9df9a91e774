-- Takes the permits from all holders, notifies their clients, and grants them to the next waiters.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters
-- ARGV  1 kind
-- Returns 1 taken away, 0 not held, {'foreign', kind} the key is something else, and was not changed
--
-- Atomic, so that the notified holders are those that lost their permits.
local _, foreign = open(ARGV[1], '')
if foreign then return foreign end
if s.lives == 0 then return refused_by_replica(waiters) or 0 end
local members, held = redis.call('HGETALL', lock), 0
for i = 1, #members, 2 do
  local token = members[i]
  if #token > ID then
    -- First: if the server refuses writes, no client is notified of a loss.
    redis.call('HDEL', lock, token)
    redis.pcall('PUBLISH', channel_of(token, queue), 'revoked ' .. token)
    held = 1
  end
end
s.used, s.earliest, s.dirty = 0, NEVER, true
settle()
return held
