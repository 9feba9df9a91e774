-- The brief form of release, whose header describes it. It is placed before everything else, so that the common case defines no functions.
-- A waiters hash without a queue is stale, and expires.
local holder = redis.pcall('GET', KEYS[1])
if not KEYS[3] then
  if holder ~= ARGV[1] or redis.call('EXISTS', KEYS[2]) == 1 then return -1 end
  return redis.call('DEL', KEYS[1])
end

