-- Releases those of several locks that are ours and that nobody queues for.
--
-- KEYS  for each: lock, queue
-- ARGV  for each: token
-- Returns for each 1, or 0 where nothing was done and `release` has to look at it
--
-- Atomic as `release` is. No step can end the script in the middle, so no lock is released without a word.
local released = {}
for i = 1, #ARGV do
  local lock = KEYS[i * 2 - 1]
  local free = redis.pcall('GET', lock) == ARGV[i]
    and redis.pcall('EXISTS', KEYS[i * 2]) == 0
    and redis.pcall('DEL', lock) == 1
  released[i] = free and 1 or 0
end
return released
