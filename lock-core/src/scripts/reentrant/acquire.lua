-- Takes the lock for an owner, once more for the owner that holds it, or reports that another owner holds it. A repeated
-- request with a counted token changes only the lease: it is the retry of a call whose reply was lost.
--
-- KEYS  1 lock  2 holds  3 fence
-- ARGV  1 owner  2 token  3 ttl, ms
--       4 number of reserved tokens that the client requests if a tenure begins
-- Returns one of
--   n                  granted, with this fencing token and all reserved tokens behind it
--   {n, reserve}       granted, with `reserve` reserved tokens behind n
--   {'busy', pttl, name}  another owner holds it; the name of the client that began the tenure
--   {'foreign', kind}  the key is not a lock
--
-- The fencing token belongs to the tenure: a further acquisition of the owner does not change it.
--
-- Atomic because it is one script. A script does not roll back, so a refused step (no memory, an ACL) is undone by commands
-- that were allowed before it. The lock is written last, after the server has set a ttl.
local lock, holds, fence = KEYS[1], KEYS[2], KEYS[3]
local owner, token, ttl, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local holder, count, known = holder_of(lock)
if not holder and count then return count end
if holder and holder ~= owner then
  local name = redis.pcall('HGET', holds, 'name')
  if type(name) ~= 'string' then name = '' end
  return refused_by_replica(lock) or {'busy', redis.call('PTTL', lock), name}
end

if holder then
  local tenure = known and redis.pcall('HMGET', holds, 'owner', 'fence', token, 'clients', 'reserve') or {}
  -- Holds of another type are lost, as if they were evicted.
  if tenure.err and not string.find(tenure.err, 'WRONGTYPE', 1, true) then return tenure end
  if tenure[1] == owner then
    local now, clients = now_ms(), clients_of(tenure[4])
    for _, ends in pairs(clients) do
      if ends <= now then
        count = bury(lock, holds, owner, count, clients, now)
        tenure[3] = redis.call('HGET', holds, token)
        break
      end
    end
    if count > 0 then
      -- Before the hold is counted: a hold is removed if the noted lease of its client has ended.
      local refused = stay(holds, clients, owner, token, ttl, now)
      if refused then return refused end
      local counted = tenure[3]
      if not counted then
        redis.call('HINCRBY', lock, owner, 1)
        counted = redis.pcall('HSET', holds, token, 1)
      end
      refused = type(counted) == 'table' and counted or prolong(lock, holds, ttl)
      if not refused then return granted(tenure[2], tonumber(tenure[5]) or wanted, wanted) end
      if not tenure[3] then
        -- In this order: a token that is listed but not counted would later remove the count of another token.
        if type(counted) ~= 'table' then redis.call('HDEL', holds, token) end
        redis.call('HINCRBY', lock, owner, -1)
      end
      return refused
    end
    -- All clients that held the lock have crashed.
    holder = nil
  end
end

-- A new tenure, or a tenure that a client without fencing tokens began. The holds belong to an earlier tenure.
local lease = holder and math.max(redis.call('PTTL', lock), ttl) or ttl
local time = redis.call('TIME')
local minted, _, reserve = mint(fence, wanted, time)
redis.call('DEL', holds)
redis.call('HSET', holds, 'owner', owner, 'fence', minted, 'name', name_in(token), token, 1)
if reserve < wanted then redis.call('HSET', holds, 'reserve', reserve) end
local refused = stay(holds, {}, owner, token, ttl, now_ms(time))
local done = refused or redis.pcall('PEXPIRE', holds, lease + AFTER)
if type(done) == 'number' then
  if holder then
    done = redis.pcall('HSET', lock, TENURE, 1)
    if type(done) == 'number' then
      done = redis.pcall('HINCRBY', lock, owner, 1)
    end
    if type(done) == 'number' then
      local refusal = prolong(lock, holds, ttl)
      if refusal then
        redis.call('DEL', holds)
        redis.call('HINCRBY', lock, owner, -1)
        return refusal
      end
    end
  else
    done = redis.pcall('HSET', lock, owner, 1, TENURE, 1)
    if type(done) == 'number' then
      done = redis.pcall('PEXPIRE', lock, ttl)
      -- An ACL may allow PEXPIRE for the holds, but not for the lock.
      if type(done) == 'table' then redis.call('DEL', lock) end
    end
  end
end
if type(done) == 'table' then
  redis.call('DEL', holds)
  return done
end
return granted(minted, reserve, wanted)
