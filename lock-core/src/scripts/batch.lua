-- Takes several locks and releases several others. A lock with a queue is left out, and so is a lock to take that is not free, or
-- a lock to release that its token does not hold.
--
-- KEYS  1 fence, then the locks to take, the locks to release, and the queues of all of them in that order
-- ARGV  1 number of locks to take, then the tokens of all locks in the same order, then the ttl in ms of the locks to take:
--         one for all of them, or one for each
-- Returns n if everything was done: the first lock taken has this fencing token, and each further one the next. Else one
-- number for each lock: the fencing token of a lock that was taken, 1 for a lock that was released, 0 if nothing was done
-- and `acquire` or `release` has to handle the lock
--
-- Atomic as acquire and release are. A key that cannot be read or written is left to them, and they report the reason: a refused
-- lock does not block the others. A command costs the server as much as its work for one lock, so one command handles all locks
-- if possible.
local take, all = tonumber(ARGV[1]), (#KEYS - 1) / 2
local queued = redis.pcall('EXISTS', unpack(KEYS, all + 2)) ~= 0
local function waited_for(i)
  return queued and redis.pcall('EXISTS', KEYS[all + 1 + i]) ~= 0
end

local done, count = {}, 0
for i = 1, all do done[i] = 0 end

local minted = 1
if take > 0 and redis.pcall('EXISTS', unpack(KEYS, 2, take + 1)) ~= take then
  -- Each lock needs a fencing token: as many locks are taken as there are tokens, and none without a counter.
  local allowed, first, _, reserve = pcall(mint, KEYS[1], take - 1)
  minted = allowed and tonumber(first)
  local ttl, each = ARGV[all + 2], ARGV[all + 3]
  for i = 1, minted and reserve + 1 or 0 do
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
