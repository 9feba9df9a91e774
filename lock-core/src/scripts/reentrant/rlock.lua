-- Helpers in front of every script of the reentrant lock.
--
-- The lock is the hash of a Redisson RLock: one field, the owner, whose value says how often it is held, and
-- one ttl on the whole. The holds hash stands beside it and is ours alone; other clients do not know it. It
-- belongs to one tenure, that is from the first acquisition of an owner to its last release: the fields
-- `owner` and `fence`, and one field for each acquisition that is counted, named by its token. Thus a call
-- that is repeated counts once. It lives as long as the lock or longer.
--
-- The processes of an owner end one by one: what one had that has crashed is not counted for as long as the others come and
-- go. So the field `clients` says until when the leases of each last, as `client ms;`. A token begins with its client.
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

-- How long the holds outlive the lock, in ms: two commands of one script may run at different moments.
local AFTER = 100

-- Gives the lease at least `ttl` ms from now. It never shortens it, as other holds of the same owner may
-- rely on more, and it leaves a lock without a ttl as it is. It always writes: a replica must refuse. Returns an error where a
-- step is refused.
local function prolong(lock, holds, ttl)
  local left, beside = redis.pcall('PTTL', lock), redis.pcall('PTTL', holds)
  if type(left) == 'table' then return left end
  -- Another client of the same owner may have renewed the lock, which does not know the holds.
  local done = redis.pcall('PEXPIRE', holds, math.max(math.max(left, ttl) + AFTER, beside))
  if type(done) == 'number' and left ~= -1 then done = redis.pcall('PEXPIRE', lock, math.max(left, ttl)) end
  return type(done) == 'table' and done or nil
end

local TOKEN = '^(' .. string.rep('.', ID) .. '):%d+$'

local function now_ms(time)
  time = time or redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Until when the leases of each client last, and how many clients there are.
local function clients_of(text)
  local clients, n = {}, 0
  for client, ends in string.gmatch(type(text) == 'string' and text or '', '(%S+) (%d+);') do
    clients[client] = tonumber(ends)
    n = n + 1
  end
  return clients, n
end

local function written(clients)
  local entries = {}
  for client, ends in pairs(clients) do entries[#entries + 1] = string.format('%s %.0f;', client, ends) end
  table.sort(entries)
  return table.concat(entries)
end

-- The client of this token stays for `ttl` ms, or longer where that is so already. Returns an error where that is refused.
-- An owner that is one acquisition has one client.
local function stay(holds, clients, owner, token, ttl, now)
  local client = owner ~= token and string.match(token, TOKEN)
  if not client then return nil end
  clients[client] = math.max(clients[client] or 0, now + ttl)
  local done = redis.pcall('HSET', holds, 'clients', written(clients))
  return type(done) == 'table' and done or nil
end

-- Uncounts what clients had whose leases are over, and drops those that have nothing counted. Returns how often the owner holds
-- the lock now, 0 where it was deleted; and for how many of these holds it is known until when they last. A refused step
-- leaves the rest as it is.
local function bury(lock, holds, owner, count, clients, now)
  local fields = redis.pcall('HGETALL', holds)
  local dead, counted, alive = {}, {}, 0
  for i = 1, #fields, 2 do
    local client = string.match(fields[i], TOKEN)
    local ends = client and clients[client]
    if ends and ends <= now then
      dead[#dead + 1] = fields[i]
    elseif ends then
      counted[client] = ends
      alive = alive + 1
    end
  end
  if #dead >= count then
    local done = redis.pcall('DEL', lock, holds)
    return type(done) == 'number' and 0 or count, 0
  end
  for _, token in ipairs(dead) do
    -- In this order: a token that stays, and is not counted, would take the count of another one with it.
    local gone = redis.pcall('HDEL', holds, token)
    if type(gone) == 'table' then return count, 0 end
    local left = redis.pcall('HINCRBY', lock, owner, -1)
    if type(left) == 'table' then
      redis.call('HSET', holds, token, 1)
      return count, 0
    end
    count = left
  end
  for client in pairs(clients) do clients[client] = counted[client] end
  return count, alive
end
