-- Whether a counter is valid. A counter below 1e15 has begun at 0: its node does not vote. A counter above 9e15 may not be exact in Lua.
-- `last` is the reply of INCRBY, which may be an error.
local function counts(last)
  if type(last) == 'number' then return last >= 1e15 and last <= 9e15 end
  for _, what in ipairs({'WRONGTYPE', 'not an integer', 'overflow'}) do
    if string.find(last.err, what, 1, true) then return false end
  end
  return true
end

