-- Releases permits that are not waited for. It is placed before the rest of release, whose header describes KEYS, ARGV and the reply,
-- so that the common case does not define the functions of that part. For that part it leaves what it has read in `known`.
local token = ARGV[1]
local known = redis.pcall('HMGET', KEYS[1], 'lock', token)
local weight = redis.call('EXISTS', KEYS[2]) == 0 and string.match(known[2] or '', '^%d+ (%d+)')
local earliest, lives, used, rest, before = string.match(weight and known[1] or '', '^(%d+) (%d+) (%d+)( %S+ %d+ (%d+) .*)$')
if earliest and earliest - now > 0 and (before == '0' or lives - now > KEEP / 2) then
  -- Where DEL is refused (an ACL), the key stays, and is free.
  if used == weight and before == '0' and redis.pcall('DEL', KEYS[1]) == 1 then return 1 end
  -- First, because a server short of memory allows it, and then lets the script finish.
  redis.call('HDEL', KEYS[1], token)
  redis.call('HSET', KEYS[1], 'lock', earliest .. ' ' .. lives .. ' ' .. used - weight .. rest)
  return 1
end

