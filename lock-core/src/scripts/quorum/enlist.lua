-- Writes the knowledge of a client to the note of a node, and returns whether the node votes. A client enlists a node on each new
-- connection, before its first vote there, and again in intervals for the ttls that it uses.
--
-- KEYS  1 fence
-- ARGV  1 'quarantine'; 'informed' if the client knows the ttls of the other nodes; 'trust' if the node never forgets votes and
--         needs no quarantine; 'begin' if the quorum is new; 'look' to change nothing
--       2 the run of the server (`run_id` of INFO)
--       3 time since the client last saw another run at this address, ms; '' if it saw none
--       4.. pairs: a ttl in use, ms, and for how much longer it is in use, ms
-- Returns {left, ttl, time, ..}: the rest of the quarantine, ms, 0 if the node votes; and the pairs of the note. {-1} if the
-- quorum is not new, because the node has a note; {-2} if a quarantine must begin, and the client does not know the ttls of the
-- other nodes
--
-- Atomic, because two clients may notice the same restart.
local how, run, ago = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = clock()

local function note(...) return redis.call('HSET', NOTE, ...) end

local function number(value) return string.format('%.0f', value) end

if how ~= 'look' and redis.call('TYPE', NOTE)['ok'] ~= 'hash' then redis.call('DEL', NOTE) end
local known = redis.call('HMGET', NOTE, 'run', 'noticed', 'since')
if how == 'begin' then
  if known[1] then return {-1} end
  note('run', run, 'noticed', number(now), 'since', '0')
elseif how == 'look' then
  if not known[3] then return {0} end
elseif known[1] ~= run or not known[3] or (ago and (tonumber(known[2]) or 0) < now - ago) then
  if how == 'quarantine' then return {-2} end
  note('run', run, 'noticed', number(now), 'since', how == 'trust' and '0' or number(now))
  -- The node has no counter until it votes again. Then the counter begins above the clock and above this count.
  local counted = tonumber(redis.pcall('GET', KEYS[1])) or 0
  if counts(counted) then note('counted', number(counted)) end
  redis.call('DEL', KEYS[1])
end

local left = wait(now)
-- A quarantine that has not ended may become longer by these ttls: a forgotten vote may have any of them.
for i = 4, #ARGV, 2 do
  local ttl, until_then = ARGV[i], now + tonumber(ARGV[i + 1])
  if (tonumber(redis.call('HGET', NOTE, ttl)) or 0) < until_then then note(ttl, number(until_then)) end
end
if left > 0 then left = wait(now) end

-- A counter from an old file is behind the clock: raise it.
local counted = tonumber(redis.pcall('GET', KEYS[1])) or 0
if how ~= 'look' and counts(counted) and counted < now * 1000 then
  redis.call('SET', KEYS[1], number(now * 1000))
end

local reply, fields = {left}, redis.call('HGETALL', NOTE)
for i = 1, #fields, 2 do
  local ttl, until_then = tonumber(fields[i]), tonumber(fields[i + 1])
  if ttl and until_then > now then
    table.insert(reply, ttl)
    table.insert(reply, math.floor(until_then - now))
  elseif ttl and how ~= 'look' then
    redis.call('HDEL', NOTE, fields[i])
  end
end
return reply
