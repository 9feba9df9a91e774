-- Makes a writer a reader, or the only reader a writer.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters
-- ARGV  1 token  2 its number  3 down|up
-- Returns its number from now on; 0 if the token holds nothing, or has another number; -1 if others read or wait. A retry finds its
-- own effect. A downgrade keeps the number, which the readers that follow share. An upgrade mints one.
--
-- Atomic because the waiting readers are granted their permits in the same step. The number keeps a late duplicate of a downgrade
-- from the writer that was upgraded meanwhile.
local token = ARGV[1]
local ends, weight, number = open('read-write', token)
if not ends then
  local refused = weight and weight.err and weight or refused_by_replica(lock)
  if refused then return refused end
  -- This member may have expired.
  if not weight then settle() end
  return 0
end
redis.call('HDEL', lock, 'lock-core:none')
if ARGV[3] == 'down' then
  if number ~= ARGV[2] then return 0 end
  if weight > 1 then
    s.used = s.used - weight + 1
    write({token, ends .. ' 1 ' .. number}, ends)
  end
  settle()
  return tonumber(number)
end
if weight == s.max then return tonumber(number) end
if number ~= ARGV[2] then return 0 end
pcall(serve)
if s.used > weight or redis.call('EXISTS', queue) == 1 then
  if s.dirty then write({}, 0) end
  return -1
end
s.used, s.earliest = 0, NEVER
write(admit({}, token, s.max, ends), ends)
return tonumber(s.number)
