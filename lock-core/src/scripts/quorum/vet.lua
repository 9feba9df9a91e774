-- Reads the note of a node, or writes it, and returns whether the node votes. A client vets a node on each new connection, before its
-- first vote there.
--
-- The note is a hash:
--
--   label, list, wait  the name of this node, the sorted names of all nodes, and the wait of the quorum, ms
--   run, replid        the run of the server (`run_id` of INFO), and its second replication id (`master_replid2`), '' if it has none
--   boot               a random name: another one for each run
--   since              the beginning of the wait, by the clock of the node, ms; 0 once the node votes
--   counted            the least counter of fencing tokens after the wait
--   format             the number of the wire format; 1 if it is missing
--   new                1 if no node of the quorum had a note when this one was written
--
-- A node with another run, or without a note, may have forgotten votes. It gives none for the wait of the quorum: no ttl is longer
-- than half of it. The counter of a node that votes is a key with the name of the boot, and every script for votes names it. So a
-- node without its data refuses them by itself.
--
-- KEYS  1 note
-- ARGV  1 'vet'; 'read' as 'vet', but nothing is written; 'join' to write a note where there is none; 'new' as 'join', if no node of the quorum has one; 'begin' to end the
--         wait of a new quorum; 'anew' to write a note that votes at once, whatever is there
--       2 label  3 list  4 wait, ms  5 run  6 second replication id
--       7 boot of a note that is written; for 'begin' the boot whose wait ends
--       8 the largest counter that the client knows of
--       9 the number of the client's format
-- Returns one of
--   {left, boot, counter, new}     the rest of the wait, ms, 0 if the node votes; its counter; whether the quorum is new
--   {'none'}                       there is no note
--   {'other', label, list, wait, format}   the node belongs to another quorum, or is another node of it, or has another format
--
-- Atomic, because two clients may find the same restart.
local NOTE = KEYS[1]
local FENCE = NOTE .. ':fence:'
local how, label, list, wait, run, replid, boot = unpack(ARGV)
local t = redis.call('TIME')
local now, micros = t[1] * 1000 + math.floor(t[2] / 1000), t[1] * 1000000 + t[2]

local function number(value) return string.format('%.0f', value) end

local reads = how == 'read'
if redis.call('TYPE', NOTE)['ok'] ~= 'hash' then
  if reads then return {'none'} end
  redis.call('DEL', NOTE)
end
local known = redis.call('HMGET', NOTE, 'label', 'list', 'wait', 'run', 'replid', 'boot', 'since', 'counted', 'new', 'format')
local format = known[10] or '1'
local is_none = not known[6]
if is_none and how ~= 'join' and how ~= 'new' and how ~= 'anew' then return {'none'} end
local is_ours = known[1] == label and known[2] == list and known[3] == wait and format == ARGV[9]
if not is_none and how ~= 'anew' and not is_ours then
  return {'other', known[1] or '', known[2] or '', known[3] or '', format}
end

local fence = FENCE .. (known[6] or '')
local counter = tonumber(redis.pcall('GET', fence) or nil)
if counter and (counter < 1e15 or counter > 9e15) then counter = nil end
local since, counted = tonumber(known[7]) or now, math.max(tonumber(known[8] or 0), tonumber(ARGV[8]))

-- Without its counter a node that has voted has lost data.
local is_lost = since == 0 and not counter
if is_none or how == 'anew' or is_lost or known[4] ~= run or (replid ~= '' and replid ~= known[5]) then
  if reads then return {tonumber(wait), known[6], 0, 0} end
  counted = math.max(counted, counter or 0)
  redis.call('DEL', NOTE, fence)
  known[6], known[9], since, counter = boot, how == 'new' and '1' or '0', now, nil
  fence = FENCE .. boot
  redis.call('HSET', NOTE, 'label', label, 'list', list, 'wait', wait, 'run', run, 'replid', replid, 'boot', boot, 'new', known[9],
    'format', ARGV[9])
end
if counter then return {0, known[6], counter, tonumber(known[9])} end

-- If the clock was set back, the wait begins again.
since = math.min(since, now)
local left = since + tonumber(wait) - now
if how == 'anew' or (how == 'begin' and known[9] == '1' and known[6] == boot) then left = 0 end
if reads then return {math.max(left, 0), known[6], 0, tonumber(known[9])} end
if left > 0 then
  redis.call('HSET', NOTE, 'since', number(since), 'counted', number(counted))
  return {left, known[6], counted, tonumber(known[9])}
end
-- More than every earlier count, unless a clock was ahead that no client knows of.
counter = math.max(micros, counted)
redis.call('SET', fence, number(counter))
redis.call('HSET', NOTE, 'since', '0', 'counted', '0', 'new', '0')
return {0, known[6], counter, 0}
