-- Helpers for the scripts that change a lock that several may hold. They are placed before the script, `state.lua` and `mint.lua`
-- before them. The list `queue` has the waiting tokens in their order; the hash `waiters` has "<ttl, ms> <weight>" for each of them,
-- and "<alive until, ms> <channel>" for each client, as in grant.lua.
--
-- A member past its deadline is gone, also if no script has removed it. Each script removes what has expired, does its own work, and
-- then serves the queue. Only its head is granted permits: a small request never overtakes a large one.
local lock, queue, fence, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- Minimum time after which a waiter that is not the first looks for expired members, ms.
local BEHIND = 1000
-- Maximum grants in one write.
local AT_ONCE = 256

-- The state as a table; `lives` is 0 if there is no key. `dirty` if it differs from what is stored.
local s

local function forget(kind)
  s = {earliest = NEVER, lives = 0, used = 0, kind = kind, max = 0, before = 0, granted = '0', number = '0', token = '', dirty = false}
end

-- Removes the members that have expired, then derives the sum.
local function sweep()
  local fields, gone, used, earliest = redis.call('HGETALL', lock), {}, 0, NEVER
  for i = 1, #fields, 2 do
    local ends, weight = string.match(fields[i + 1], MEMBER)
    if ends and #fields[i] > ID then
      if tonumber(ends) <= now then
        gone[#gone + 1] = fields[i]
      else
        used, earliest = used + weight, math.min(earliest, tonumber(ends))
      end
    end
  end
  -- First: a member that is not counted would later make the sum too small.
  for i = 1, #gone, 1000 do redis.call('HDEL', lock, unpack(gone, i, math.min(i + 999, #gone))) end
  s.used, s.earliest, s.dirty = used, earliest, true
end

-- Reads the state, for a lock of this kind (nil for any), unless that was done: `known` and `state`. Returns the deadline, the weight
-- and the number of the member with this token, if there is one; or nil and a reply, if the key is something else.
local function open(kind, token, known, state)
  forget(kind)
  known = known or redis.pcall('HMGET', lock, 'lock', token)
  if known.err then
    if not string.find(known.err, 'WRONGTYPE', 1, true) then return nil, known end
    return nil, {'foreign', redis.call('TYPE', lock)['ok']}
  end
  local earliest, lives, used, of, max, before, granted, number, last = unpack(state or {string.match(known[1] or '', STATE)})
  if not last then
    if redis.call('EXISTS', lock) == 1 then return nil, {'foreign', 'hash'} end
    return nil
  end
  s.earliest, s.lives, s.used, s.kind = tonumber(earliest), tonumber(lives), tonumber(used), of
  s.max, s.before, s.granted, s.number, s.token = tonumber(max), tonumber(before), granted, number, last
  if s.earliest <= now then sweep() end
  if kind and of ~= kind then
    if s.used > 0 then return nil, {'foreign', of} end
    -- What has expired does not keep the name.
    redis.call('DEL', lock)
    forget(kind)
    return nil
  end
  local ends, weight, own = string.match(known[2] or '', MEMBER)
  if ends and tonumber(ends) > now then return tonumber(ends), tonumber(weight), own end
end

-- Writes the state, with these fields of members, of which `ends` is the last deadline. The key gets twice the ttl, so that most
-- grants leave its ttl as it is. The ttl comes first, also for a key that begins: a refused PEXPIRE (an ACL) leaves nothing.
local function write(fields, ends)
  if s.before > 0 then ends = math.max(ends, now + KEEP / 2) end
  local begins, prolongs = s.lives == 0, ends > s.lives
  if prolongs then
    s.lives = 2 * ends - now
    redis.call('PEXPIRE', lock, s.lives - now)
  end
  fields[#fields + 1], fields[#fields + 2] = 'lock', s.earliest .. ' ' .. s.lives .. ' ' .. s.used .. ' ' .. s.kind .. ' ' .. s.max
    .. ' ' .. s.before .. ' ' .. s.granted .. ' ' .. s.number .. ' ' .. s.token
  redis.call('HSET', lock, unpack(fields))
  if begins then redis.call('PEXPIRE', lock, s.lives - now) end
  s.dirty = false
end

-- Counts a new member, and adds its field to those to write. A writer, and the first reader of a phase, mint a fencing token: nothing
-- else is held then. The readers that join share it. The number of a semaphore's permit only identifies it.
local function admit(fields, token, weight, ends)
  local granted = time[1] .. string.sub('00000' .. time[2], -6)
  -- Texts of one length are in the order of their numbers.
  if #s.granted > #granted or (#s.granted == #granted and s.granted >= granted) then
    granted = string.format('%.0f', s.granted + 1)
  end
  if s.kind ~= 'read-write' then
    s.number = granted
  elseif s.used == 0 then
    s.number = mint(fence, 0, time)
  end
  s.granted, s.token = granted, token
  s.used, s.earliest = s.used + weight, math.min(s.earliest, ends)
  fields[#fields + 1], fields[#fields + 2] = token, ends .. ' ' .. weight .. ' ' .. s.number
  return fields
end

-- Whether a client is connected. Where the rights do not tell (an ACL), it is. In a cluster, in which the counter is one of the slot,
-- PUBLISH reaches the clients of all nodes and counts those of this one: a client of another one may live, and asks again at once.
local function hears(channel)
  if string.sub(fence, -1) == '}' then return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0 end
  return redis.pcall('PUBLISH', channel, 'behind') ~= 0
end

-- Takes these waiters off the front of the queue, after their permits were written. `known` has their terms.
local function leave(gone, known)
  if #gone == 0 then return end
  redis.call('HDEL', waiters, unpack(gone))
  for i = 1, #gone do
    local left = redis.pcall('LPOP', queue)
    if type(left) == 'table' then
      -- The waiters hash and the queue name the same tokens.
      for at = i, #gone do
        if known[at] then redis.call('HSET', waiters, gone[at], known[at]) end
      end
      error(left, 0)
    end
  end
end

-- Grants permits to the head of the queue while it fits, and drops dead heads. `asking` is the token of the current request, which is
-- live, and asks for this ttl. Returns its number if it was granted permits, and the number of grants. After a refused step (an ACL)
-- the members and the queue are as they were.
local function serve(asking, asked_ttl)
  local mine, served = nil, 0
  repeat
    local before, fields, messages, gone, terms, last, grants, brief = {}, {}, {}, {}, {}, 0, 0, false
    for name, value in pairs(s) do before[name] = value end
    while s.used < s.max and #gone < AT_ONCE do
      local head = redis.call('LINDEX', queue, #gone)
      if not head then break end
      local known = redis.call('HMGET', waiters, head, string.sub(head, 1, ID))
      local ttl, weight = string.match(known[1] or '', '^(%d+) (%d+)')
      local alive_until, channel = string.match(known[2] or '', '^(%d+) (%S*)')
      local live = ttl and (head == asking or (alive_until and tonumber(alive_until) > now))
      local learns = live and (tonumber(weight) > s.max or (head ~= asking and channel ~= '' and not hears(channel)))
      live = live and not learns
      if live and s.used + weight > s.max then break end
      gone[#gone + 1], terms[#gone + 1] = head, known[1]
      if live then
        local lease = tonumber(head == asking and asked_ttl or ttl)
        -- A client that polls shows only by its requests that it lives.
        if head ~= asking and channel == '' and tonumber(alive_until) - now < lease then
          lease, brief = tonumber(alive_until) - now, true
        end
        admit(fields, head, tonumber(weight), now + lease)
        last, grants = math.max(last, now + lease), grants + 1
        if head == asking then
          mine = s.number
        elseif channel ~= '' then
          messages[#messages + 1] = {channel, table.concat({'permit', head, s.granted, s.number, s.kind, ttl, lock}, ' ')}
        end
      elseif learns and channel ~= '' then
        messages[#messages + 1] = {channel, 'free ' .. head}
      end
    end
    local done, refusal = pcall(function()
      if grants > 0 then write(fields, last) end
      leave(gone, terms)
    end)
    if not done then
      -- What cannot be taken out again counts.
      local undone = true
      for i = 1, 2 * grants, 2 do undone = type(redis.pcall('HDEL', lock, fields[i])) ~= 'table' and undone end
      if undone then s = before end
      s.dirty = true
      error(refusal, 0)
    end
    -- If PUBLISH is refused (an ACL), the waiter finds its permits with its next refresh.
    for _, message in ipairs(messages) do redis.pcall('PUBLISH', message[1], message[2]) end
    -- The first waiter behind that is told sends a request, and learns the end of the short lease. Only 8 are looked at.
    for at = 0, brief and 7 or -1 do
      local behind = redis.call('LINDEX', queue, at)
      if not behind then break end
      local of = redis.call('HMGET', waiters, string.sub(behind, 1, ID))
      local channel = string.match(of[1] or '', '^%d+ (%S+)')
      if channel then
        redis.pcall('PUBLISH', channel, 'free ' .. behind)
        break
      end
    end
    served = served + grants
  until #gone < AT_ONCE
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', waiters) end
  return mine, served
end

-- Serves the queue at the end of a script that has done its own work: that counts even if a step of a grant is refused (an ACL), and
-- the waiter asks again. Deletes a lock of which nothing is left.
local function settle()
  local done, _, served = pcall(serve)
  local is_over = s.used == 0 and s.before == 0
  local left = is_over and s.lives > 0 and redis.pcall('DEL', lock)
  -- Where DEL is refused (an ACL), the key stays, and is free.
  if type(left) == 'table' or (s.dirty and not is_over) then write({}, 0) elseif is_over then s.lives = 0 end
  return done and served or 0
end
