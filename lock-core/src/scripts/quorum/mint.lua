-- Mints the first of `size` fencing tokens of a vote. Every request of every client counts on every node, whatever its outcome.
-- So the nodes usually have the same count, and no counter has to be raised afterwards. `last` is the reply of INCRBY.
--
-- A counter far below any clock has just begun, perhaps again. A counter that is no number, or that a script cannot tell from
-- the next one, is useless. Both begin at the clock of the node in microseconds, which is above every earlier count, unless
-- more than a million is counted in a second. '%.0f' because tostring() drops digits above 10^14.
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

