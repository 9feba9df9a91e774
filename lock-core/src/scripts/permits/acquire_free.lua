-- Grants permits that are free and not waited for. It is placed before the rest of acquire, whose header describes KEYS, ARGV and the
-- reply, so that the common case does not define the functions of that part. For that part it leaves `keys`, `known` and `state`.
local token, ttl, kind, max, weight = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local keys = redis.call('EXISTS', KEYS[1], KEYS[2])
local known = keys > 0 and redis.pcall('HMGET', KEYS[1], 'lock', token) or {}
local state = keys == 1 and {string.match(known[1] or '', STATE)}
if keys < 2 and not known[2] then
  local earliest, lives, used, of, total, before, last, number = NEVER, '0', '0', kind, max, '0', '0', '0'
  if state then earliest, lives, used, of, total, before, last, number = unpack(state) end
  local granted = time[1] .. string.sub('00000' .. time[2], -6)
  -- Numbers of one length are compared as texts.
  local is_fit = earliest and earliest - now > 0 and of == kind and (max == total or max == before) and last < granted
    and #last <= #granted and (before == '0' or lives - now > KEEP / 2)
  if is_fit and used + weight <= tonumber(total) then
    if kind ~= 'read-write' then number = granted elseif used == '0' then number = mint(KEYS[3], 0, time) end
    local ends, kept = now + ttl .. '', 2 * ttl .. ''
    if ends < earliest then earliest = ends end
    if ends > lives then
      lives = ends + ttl
      redis.call('PEXPIRE', KEYS[1], kept)
    end
    redis.call('HSET', KEYS[1], token, ends .. ' ' .. weight .. ' ' .. number, 'lock', earliest .. ' ' .. lives .. ' '
      .. used + weight .. ' ' .. kind .. ' ' .. total .. ' ' .. before .. ' ' .. granted .. ' ' .. number .. ' ' .. token)
    if keys == 0 then redis.call('PEXPIRE', KEYS[1], kept) end
    return tonumber(number)
  end
  if is_fit and weight + 0 <= tonumber(total) and string.sub(ARGV[6], 1, 4) == 'try ' then
    return refused_by_replica(KEYS[4]) or {'busy', earliest - now, name_in(state[9])}
  end
end
