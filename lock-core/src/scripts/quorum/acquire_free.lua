-- The vote for a free lock without a queue. It is placed before the rest of acquire, whose header describes KEYS, ARGV and the
-- reply, so that the common case does not define the functions of that part. Each request is counted on each node, also if it fails.
-- So the counters of the nodes are usually equal, and need not be raised afterwards.
local fence, size = ARGV[#ARGV], ARGV[5] and ARGV[4] or 1
local last = redis.pcall('INCRBY', fence, size)
if type(last) == 'number' and last >= 1e15 and last <= 9e15
  and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  local t = redis.call('TIME')
  return {last + 1 - size, t[1] * 1000 + math.floor(t[2] / 1000)}
end

