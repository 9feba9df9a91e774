-- Takes those of several locks that are free and that nobody queues for, and releases those of others that are ours and that
-- nobody queues for.
--
-- KEYS  1 fence, then the locks to take, the locks to release, and the queues of all of them in that order
-- ARGV  1 how many are to be taken, then the tokens of all in the order of the locks, then for those that are to be taken
--         the ttl in ms: one for all of them, or one for each
-- Returns n where everything was done: the first lock that was taken has this fencing token, and each further one the next.
-- Else for each lock to take the fencing token, and for each of the others 1; or 0 where nothing was done and `acquire` or
-- `release` has to look at it
--
-- Atomic as those are. What cannot be read, or not be written, is left to them, and they say why: one that is refused does not
-- keep the others from what they want. A command costs the server as much as what it does for one lock, so what can be asked
-- for all of them at once is.
local take, all = tonumber(ARGV[1]), (#KEYS - 1) / 2
local queued = redis.pcall('EXISTS', unpack(KEYS, all + 2)) ~= 0
local function waited_for(i)
  return queued and redis.pcall('EXISTS', KEYS[all + 1 + i]) ~= 0
end

local done, count = {}, 0
for i = 1, all do done[i] = 0 end

local minted = 1
if take > 0 and redis.pcall('EXISTS', unpack(KEYS, 2, take + 1)) ~= take then
  local t = redis.pcall('TIME')
  minted = not t.err and t[1] * 1000000 + t[2]
  local counter = minted and string.format('%.0f', minted + take - 1)
  local last = minted and redis.pcall('SET', KEYS[1], counter, 'GET')
  if type(last) == 'table' then
    -- Something that is no counter is replaced. Without a counter nothing is taken.
    local set = redis.pcall('SET', KEYS[1], counter)
    if set.err then minted = nil end
    last = nil
  end
  last = tonumber(last or 0) or 0
  if minted and last >= minted then
    minted = last + 1
    redis.call('SET', KEYS[1], string.format('%.0f', minted + take - 1))
  end
  local ttl, each = ARGV[all + 2], ARGV[all + 3]
  for i = 1, minted and take or 0 do
    if not waited_for(i) then
      local set = redis.pcall('SET', KEYS[i + 1], ARGV[i + 1], 'NX', 'PX', each and ARGV[all + 1 + i] or ttl)
      if set and not set.err then
        done[i] = minted + i - 1
        count = count + 1
      end
    end
  end
end

if all > take then
  local holders = redis.pcall('MGET', unpack(KEYS, take + 2, all + 1))
  local ours, known = {}, {}
  for i = take + 1, all do
    local lock = KEYS[i + 1]
    if holders[i - take] == ARGV[i + 1] and not known[lock] and not waited_for(i) then
      known[lock] = true
      ours[#ours + 1] = lock
      done[i] = 1
    end
  end
  if #ours > 0 and redis.pcall('DEL', unpack(ours)) ~= #ours then
    for i = take + 1, all do done[i] = 0 end
  else
    count = count + #ours
  end
end
return count == all and minted or done
