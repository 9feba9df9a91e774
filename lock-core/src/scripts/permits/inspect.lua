-- The state of a lock that several may hold, at this moment.
--
-- KEYS  1 lock  2 queue
-- ARGV  1 kind
-- Returns {'free', waiters, queue, number}, {'held', waiters, queue, number, used, max, {client id, rest of the token, weight, ms left,
-- ..}} or {'foreign', waiters, queue, number, kind}. `queue` has the first 100 waiters, as their tokens without the client ids; `number`
-- is that of the last grant, 0 if it is not known. There are at most 100 members, those that began first.
--
-- Atomic because the members and the queue are read together.
local refusal = read_from_replica(KEYS[1])
if refusal then return refusal end
local waiting, queue = redis.call('LLEN', KEYS[2]), redis.pcall('LRANGE', KEYS[2], 0, 99)
if queue.err then queue = {} end
for i, token in ipairs(queue) do queue[i] = string.sub(token, ID + 2) end

local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then
  if not string.find(fields.err, 'WRONGTYPE', 1, true) then return fields end
  return {'foreign', waiting, queue, '0', redis.call('TYPE', KEYS[1])['ok']}
end
local members, used, kind, max, last = {}, 0, nil, nil, '0'
for i = 1, #fields, 2 do
  local token, ends, weight, number = fields[i], string.match(fields[i + 1], MEMBER)
  if token == 'lock' then
    local _, _, _, of, most, _, _, number = string.match(fields[i + 1], STATE)
    kind, max, last = of, most, number
  elseif token == 'lock-core:tenure' then
    kind = 'reentrant'
  elseif ends and #token > ID and tonumber(ends) > now then
    used = used + weight
    members[#members + 1] = {number, token, tonumber(weight), ends - now}
  end
end
if #fields > 0 and kind ~= ARGV[1] and (not kind or used > 0) then
  return {'foreign', waiting, queue, '0', kind or 'hash'}
end
if used == 0 then return {'free', waiting, queue, last or '0'} end
-- Readers share a number: behind the client id, a token begins with the time of its first request.
table.sort(members, function(a, b) return a[1] .. string.sub(a[2], ID + 1) < b[1] .. string.sub(b[2], ID + 1) end)
local shown = {}
for i = 1, math.min(#members, 100) do
  local _, token, weight, left = unpack(members[i])
  for _, one in ipairs({string.sub(token, 1, ID), string.sub(token, ID + 2), weight, left}) do shown[#shown + 1] = one end
end
return {'held', waiting, queue, last, used, tonumber(max), shown}
