-- Helpers for every script of the reentrant lock. They are placed before it.
--
-- The lock is the hash of a Redisson RLock: one field, the owner, whose value is the number of its holds, and one ttl for the
-- hash. The holds hash is a second key, which other clients do not know. It belongs to one tenure: from the first acquisition of
-- an owner to its last release. It has the fields `owner`, `fence` and `name` (of the client that began the tenure), and one field
-- for each counted acquisition, named by its token. So a repeated call counts once. It lives as long as the lock or longer.
--
-- The processes of an owner end one by one. The holds of a crashed process must not stay counted while other processes use the
-- lock. So the field `clients` has the end of the leases of each client, as `client ms;`. A token begins with its client.
--
-- Redisson deletes the lock without the holds, and may take it again for the same owner. So the lock has a second field, which
-- Redisson never reads. Without this field, the holds belong to an earlier tenure.
local TENURE = 'lock-core:tenure'

-- The owner of the lock, the number of its holds, and whether the holds hash is of this tenure. nil if the lock is free. nil
-- and a reply if the key is not a lock of this kind: a key without a prefix may have other data. A lock always has a ttl, and data
-- seldom. `any_ttl`: the caller knows a token of the lock, so that it is one also after PERSIST.
local function holder_of(lock, any_ttl)
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
      if not any_ttl and redis.call('PTTL', lock) == -1 then return nil, {'foreign', 'hash without a ttl'} end
      return owner, tonumber(count), known
    end
  end
  return nil, {'foreign', 'hash that is no lock'}
end

-- Announces that the lock may be free. In a cluster also with `publish_in_slot`, which reaches Redisson: with `00`, the number 0 as well,
-- since a client that hears both ways must not take it for another release. Returns how many connections to this node heard it.
local function announce(channel, publish, publish_in_slot)
  local heard = redis.pcall(publish, channel, '0')
  local in_slot = publish_in_slot and redis.pcall(publish_in_slot, channel, '00')
  -- If a command is refused (an ACL), or not known, the waiters repeat their requests soon.
  return math.max(type(heard) == 'number' and heard or 0, type(in_slot) == 'number' and in_slot or 0)
end

-- Time by which the holds outlive the lock, ms: two commands of one script may run at different moments.
local AFTER = 100

-- Extends the lease to at least `ttl` ms from now. It never shortens it, since other holds of the same owner may rely on more. It
-- always writes: a replica must refuse. Returns an error if a step is refused.
local function prolong(lock, holds, ttl)
  local left, beside = redis.pcall('PTTL', lock), redis.pcall('PTTL', holds)
  if type(left) == 'table' then return left end
  local lease = math.max(left, ttl)
  -- A client that does not know the holds may have renewed the lock for the same owner.
  local done = redis.pcall('PEXPIRE', holds, math.max(lease + AFTER, beside))
  -- Ttl 0 only confirms a hold, also of a lock whose ttl `PERSIST` has removed.
  if type(done) == 'number' and lease > 0 then done = redis.pcall('PEXPIRE', lock, lease) end
  return type(done) == 'table' and done or nil
end

local TOKEN = '^(' .. string.rep('.', ID) .. '):%d+'

local function now_ms(time)
  time = time or redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The end of the leases of each client, and the number of clients.
local function clients_of(text)
  local clients, n = {}, 0
  for client, ends in string.gmatch(type(text) == 'string' and text or '', '(%S+) (%d+)[^;]*;') do
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

-- Notes that the client of this token may hold the lock for `ttl` ms, unless a later end is noted. Returns an error if a step is
-- refused. An owner that is one acquisition has one client, so nothing is noted.
local function stay(holds, clients, owner, token, ttl, now)
  local client = owner ~= token and string.match(token, TOKEN)
  if not client then return nil end
  clients[client] = math.max(clients[client] or 0, now + ttl)
  local done = redis.pcall('HSET', holds, 'clients', written(clients))
  return type(done) == 'table' and done or nil
end

-- Removes the holds of clients whose leases have ended, and the entries of clients without counted holds. Returns the number of
-- holds that the owner has now, 0 if the lock was deleted, and the number of these holds with a known end. After a refused step,
-- nothing more is removed.
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
    -- In this order: a token that is listed but not counted would later remove the count of another token.
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
