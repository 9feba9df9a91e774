-- Takes those of several locks that are free and that nobody queues for, and releases those of others that are ours and that
-- nobody queues for.
--
-- KEYS  1 fence, then the locks to take, the locks to release, and the queues of all of them in that order
-- ARGV  1 how many are to be taken, then for each of these: token, ttl in ms; then for each of the others: token
-- Returns for each lock to take the fencing token, and for each of the others 1; or 0 where nothing was done and `acquire`
-- or `release` has to look at it
--
-- Atomic as those are. What can not be read, or not be written, is left to them, and they say why. The one step that can end
-- the script is the first write, so no lock is taken or released without a word. A command costs the server as much as what
-- it does for one lock, so what can be asked for all of them at once is.
local take = tonumber(ARGV[1])
local give = #ARGV - 1 - 2 * take
local all = take + give
local queued = redis.pcall('EXISTS', unpack(KEYS, all + 2)) ~= 0
local function waited_for(i)
  return queued and redis.pcall('EXISTS', KEYS[all + 1 + i]) ~= 0
end

local done = {}
for i = 1, all do done[i] = 0 end

if take > 0 and redis.pcall('EXISTS', unpack(KEYS, 2, take + 1)) ~= take then
  local t = redis.call('TIME')
  local minted = t[1] * 1000000 + t[2]
  local last = redis.call('SET', KEYS[1], string.format('%.0f', minted + take - 1), 'GET')
  last = tonumber(last or 0) or 0
  if last >= minted then
    minted = last + 1
    redis.call('SET', KEYS[1], string.format('%.0f', minted + take - 1))
  end
  for i = 1, take do
    if not waited_for(i) then
      local set = redis.pcall('SET', KEYS[i + 1], ARGV[i * 2], 'NX', 'PX', ARGV[i * 2 + 1])
      if set and not set.err then done[i] = minted + i - 1 end
    end
  end
end

if give > 0 then
  local holders = redis.pcall('MGET', unpack(KEYS, take + 2, all + 1))
  local ours, known = {}, {}
  for i = 1, give do
    local lock = KEYS[take + 1 + i]
    if holders[i] == ARGV[1 + 2 * take + i] and not known[lock] and not waited_for(take + i) then
      known[lock] = true
      ours[#ours + 1] = lock
      done[take + i] = 1
    end
  end
  if #ours > 0 and redis.pcall('DEL', unpack(ours)) ~= #ours then
    for i = take + 1, all do done[i] = 0 end
  end
end
return done
