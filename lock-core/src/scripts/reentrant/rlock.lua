-- Helpers in front of every script of the reentrant lock.
--
-- The lock is the hash of a Redisson RLock: one field, the owner, whose value says how often it is held, and
-- one ttl on the whole. The holds hash stands beside it and is ours alone; other clients do not know it. It
-- belongs to one tenure, that is from the first acquisition of an owner to its last release: the fields
-- `owner` and `fence`, and one field for each acquisition that is counted, named by its token. Thus a call
-- that is repeated counts once. It lives as long as the lock or longer.
--
-- Redisson deletes the lock without the holds, and may take it again for the same owner. So the lock has a second field,
-- which Redisson never reads: without it, what the holds say is of an earlier tenure.
local TENURE = 'lock-core:tenure'

-- The owner of the lock, how often it is held, and whether the holds are of this tenure. nil where the lock is free; nil and
-- a reply where it is no lock of this kind: a name without a prefix may well be that of other data.
local function holder_of(lock)
  local fields = redis.pcall('HLEN', lock)
  if type(fields) == 'table' then
    if not string.find(fields.err, 'WRONGTYPE', 1, true) then return nil, fields end
    return nil, {'foreign', redis.call('TYPE', lock)['ok']}
  end
  if fields == 0 then return nil end
  if fields <= 2 then
    local all = redis.call('HGETALL', lock)
    local at = all[1] == TENURE and 3 or 1
    local owner, count, known = all[at], all[at + 1], fields == 2
    local alone = not known or all[4 - at] == TENURE
    if owner and alone and #count < 16 and string.find(count, '^[1-9]%d*$') then
      return owner, tonumber(count), known
    end
  end
  return nil, {'foreign', 'hash that is no lock'}
end

-- Gives the lease at least `ttl` ms from now. It never shortens it, as other holds of the same owner may
-- rely on more, and it leaves a lock without a ttl as it is. It always writes: a replica must refuse.
local function prolong(lock, holds, ttl)
  local left = redis.call('PTTL', lock)
  if left ~= -1 then redis.call('PEXPIRE', lock, math.max(left, ttl)) end
  -- Another client of the same owner may have renewed the lock, which does not know this key.
  redis.call('PEXPIRE', holds, math.max(left, ttl, redis.call('PTTL', holds)))
end

