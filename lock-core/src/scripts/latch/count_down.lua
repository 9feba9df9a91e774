-- Counts an id, once, and tells how many are left. Without an id it only tells.
--
-- KEYS  1 latch, which is also the name of the channel
-- ARGV  1 count  2 ttl, ms  3 id
-- Returns the number of ids that are left, 0 if the latch is open; {'count', n} if it was made for another number; {'foreign', kind}
--
-- Atomic, so that the last of several clients that count at a time opens the latch.
local latch, count, id = KEYS[1], tonumber(ARGV[1]), ARGV[3]
local known = redis.pcall('HMGET', latch, 'count')
if known.err then
  if not string.find(known.err, 'WRONGTYPE', 1, true) then return known end
  return {'foreign', redis.call('TYPE', latch)['ok']}
end
local made_for = known[1]
if not made_for and redis.call('EXISTS', latch) == 1 then return {'foreign', 'hash that is no latch'} end
if made_for and tonumber(made_for) ~= count then return read_from_replica(latch) or {'count', tonumber(made_for) or 0} end
local left = made_for and count + 1 - redis.call('HLEN', latch) or count
if not id or left <= 0 then return read_from_replica(latch) or math.max(left, 0) end

-- Before the write: a refused PTTL (an ACL) would leave a latch without a ttl.
local lasts = math.max(redis.call('PTTL', latch), tonumber(ARGV[2]))
-- A name of an id never is that of the count.
local new = redis.call('HSET', latch, 'count', count, ':' .. id, '') > 0
-- An id that counts again shows that its part lives. Other parts may name a shorter ttl.
local kept = redis.pcall('PEXPIRE', latch, lasts)
if type(kept) == 'table' then
  -- A hash without fields is gone. Of both commands, one may be refused as well.
  if new and not made_for then redis.pcall('DEL', latch) end
  if new then redis.call('HDEL', latch, ':' .. id, made_for and ':' .. id or 'count') end
  return kept
end
if new then left = left - 1 end
if left == 0 then redis.pcall('PUBLISH', latch, '0') end
return left
