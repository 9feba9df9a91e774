-- Whether a counter is valid. A smaller one has restarted, and a larger one is not exact in Lua. `last` is the reply of INCRBY,
-- which may be an error.
local function counts(last)
  if type(last) == 'number' then return last >= 1e15 and last <= 9e15 end
  for _, what in ipairs({'WRONGTYPE', 'not an integer', 'overflow'}) do
    if string.find(last.err, what, 1, true) then return false end
  end
  return true
end

-- Returns the first of `size` fencing tokens of a vote. Each request is counted on each node, also if it fails. So the counters of
-- the nodes are usually equal, and need not be raised afterwards.
--
-- A counter begins at the clock of the node in microseconds. That is more than every earlier count, unless more than a million
-- tokens a second were counted, or an earlier clock was ahead. '%.0f' because tostring() drops digits above 10^14.
local function mint(fence, last, size)
  if counts(last) then return type(last) == 'table' and last or last + 1 - size end
  local t = redis.call('TIME')
  local counted = tonumber(redis.call('HGET', NOTE, 'counted') or 0)
  local first = math.max(t[1] * 1000000 + t[2], counted + 1)
  redis.call('SET', fence, string.format('%.0f', first + size - 1))
  return first
end

