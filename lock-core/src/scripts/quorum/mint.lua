-- The fencing token of a vote, the first of `size`. All clients count their requests on every node, whatever comes of them,
-- so that as a rule the nodes are at the same number, and no counter has to be raised afterwards. `last` is what INCRBY has
-- answered.
--
-- A counter that is far behind any clock has just begun, perhaps again, and one that is no number, or none that a script
-- can tell from the next one, cannot be counted on: the clock of the node, in microseconds, is above whatever was counted
-- before, unless more than a million is counted in a second. '%.0f' because tostring() drops digits above 10^14.
local function mint(fence, last, size)
  if type(last) == 'table' then
    local garbage = false
    for _, what in ipairs({'WRONGTYPE', 'not an integer', 'overflow'}) do
      garbage = garbage or string.find(last.err, what, 1, true)
    end
    if not garbage then return last end
    last = 0
  end
  if last < 1e15 or last > 9e15 then
    if last > 9e15 then last = 0 end
    local t = redis.call('TIME')
    last = math.max(t[1] * 1000000 + t[2] + size - 1, last)
    redis.call('SET', fence, string.format('%.0f', last))
  end
  return last + 1 - size
end

