-- The state of a lock that several may hold, at this moment.
--
-- KEYS  1 lock  2 queue  3 waiters
-- ARGV  1 kind
-- Returns {'free', waiters, queue, number}, {'held', waiters, queue, number, used, max, {client id, rest of the token, weight, ms left,
-- ..}} or {'foreign', waiters, queue, number, kind}. `queue` has those of the first 100 waiters that live, as their tokens without the
-- client ids; `number` is that of the last grant, 0 if it is not known. There are at most 100 members, those that began first. Of more
-- than 1000 they are any, and `used` may count members that have expired.
--
-- Atomic because the members and the queue are read together.
local refusal = read_from_replica(KEYS[1])
if refusal then return refusal end
local waiting, queue = queued(KEYS[2], KEYS[3])

local known = redis.pcall('HMGET', KEYS[1], 'lock', 'lock-core:tenure')
if known.err then
  if not string.find(known.err, 'WRONGTYPE', 1, true) then return known end
  return {'foreign', waiting, queue, '0', redis.call('TYPE', KEYS[1])['ok']}
end
local size, _, _, counted, kind, max, _, _, last = redis.call('HLEN', KEYS[1]), string.match(known[1] or '', STATE)
if known[2] then kind = 'reentrant' end
if size > 0 and not kind then return {'foreign', waiting, queue, '0', 'hash'} end
local members, used, gone, cursor = {}, 0, 0, '0'
repeat
  -- Without the right to HSCAN all are read.
  local page = size > 1000 and redis.pcall('HSCAN', KEYS[1], cursor, 'COUNT', 1000) or {}
  local fields = page[2] or redis.call('HGETALL', KEYS[1])
  cursor = page[1] or '0'
  for i = 1, #fields, 2 do
    local token, ends, weight, number = fields[i], string.match(fields[i + 1], MEMBER)
    if ends and #token > ID then
      if tonumber(ends) > now then
        used = used + weight
        -- Readers share a number: behind the client id, a token begins with the time of its first request.
        members[#members + 1] = {number .. string.sub(token, ID + 1), token, tonumber(weight), ends - now}
      else
        gone = gone + weight
      end
    end
  end
until cursor == '0' or #members > 0
if cursor ~= '0' then used = counted - gone end
if (used > 0 or known[2]) and kind ~= ARGV[1] then return {'foreign', waiting, queue, '0', kind} end
if used == 0 then return {'free', waiting, queue, last or '0'} end
table.sort(members, function(a, b) return a[1] < b[1] end)
local shown = {}
for i = 1, math.min(#members, 100) do
  local _, token, weight, left = unpack(members[i])
  for _, one in ipairs({string.sub(token, 1, ID), string.sub(token, ID + 2), weight, left}) do shown[#shown + 1] = one end
end
return {'held', waiting, queue, last, used, tonumber(max), shown}
