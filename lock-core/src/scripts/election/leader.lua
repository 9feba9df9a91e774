-- Tells who leads.
--
-- KEYS  1 lock  2 leader
-- Returns {} if the lock is free; {pttl} if the holder is not named; {pttl, term, value}; {'foreign', kind}
--
-- Atomic because a record counts only with the lock of the same token.
local refusal = read_from_replica(KEYS[2])
if refusal then return refusal end
local holder = redis.pcall('GET', KEYS[1])
if not holder then return {} end
if type(holder) == 'table' then
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return holder end
  return {'foreign', redis.call('TYPE', KEYS[1])['ok']}
end
local pttl = redis.call('PTTL', KEYS[1])
if pttl == -1 then return {'foreign', 'string without a ttl'} end
local record = redis.pcall('GET', KEYS[2])
-- On the nodes of a quorum the lock has its edition behind a brace.
local token = string.match(holder, '^[^{]*')
if type(record) == 'string' and string.sub(record, 1, #token + 1) == token .. ' ' then
  local term, value = string.match(string.sub(record, #token + 2), '^(%d+) (.*)$')
  if term then return {pttl, term, value} end
end
return {pttl}
