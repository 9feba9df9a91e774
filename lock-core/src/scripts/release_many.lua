-- Releases those of several locks that are ours and that nobody queues for.
--
-- KEYS  the locks, then their queues
-- ARGV  for each lock: token
-- Returns for each 1, or 0 where nothing was done and `release` has to look at it
--
-- Atomic as `release` is. No step can end the script in the middle, so no lock is released without a word. What is refused
-- for one of them is refused for all, and left to `release`.
local count = #ARGV
local holders = redis.pcall('MGET', unpack(KEYS, 1, count))
local queued = redis.pcall('EXISTS', unpack(KEYS, count + 1)) ~= 0
local released, ours, known = {}, {}, {}
for i = 1, count do
  local lock = KEYS[i]
  local free = holders[i] == ARGV[i] and not known[lock]
    and (not queued or redis.pcall('EXISTS', KEYS[count + i]) == 0)
  if free then
    known[lock] = true
    ours[#ours + 1] = lock
  end
  released[i] = free and 1 or 0
end
if #ours > 0 and redis.pcall('DEL', unpack(ours)) ~= #ours then
  for i = 1, count do released[i] = 0 end
end
return released
