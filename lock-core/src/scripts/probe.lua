-- Tries each command that a lock needs, on a key of lock-core that does not exist.
--
-- ARGV  1 the namespace, the beginning of that key
--       2 the prefix of the locks with its namespace; empty for none
--       3 the end of that key: in a cluster a tag, so that the key is in a slot of this node; otherwise left out
--
-- Returns what this user lacks: the names of the commands that it may not run, `?` and the name of each that the server does not
-- know (it was renamed), `~` if it may not use the counter of fencing tokens, which every lock needs, and `%` if it may not write
-- each key with the prefix. Of commands nothing for a user of the reentrant lock alone: it may run every command of that lock, and
-- no command that only the exclusive lock needs. Any other refusal (a key outside the user's pattern, a full server) proves
-- nothing. The text of a refusal does not name the command.
--
-- Atomic, so that no other client sees the key. The script removes it.
local namespace, prefix, tag = ARGV[1], ARGV[2], ARGV[3] or ''
local KEY = namespace .. 'lock-core:probe' .. tag
local refused = {{}, {}}
-- What some calls need: an error only beside others.
local also = {}
-- Number of commands of the exclusive lock alone that were not refused.
local own = 0

-- Whether an error says that the keys of a command are not the user's.
local function is_of_keys(reply)
  local err = type(reply) == 'table' and reply.err or ''
  return string.find(err, 'one of the keys', 1, true) or string.find(err, 'access a key', 1, true)
end

-- `of` is 1 or 2 for a command of one kind of lock, 3 for a command of both, 0 for one of some calls. Whether it has succeeded, or
-- cannot touch the key.
local function try(of, name, ...)
  local reply = redis.pcall(name, ...)
  local err = type(reply) == 'table' and reply.err or ''
  local unknown = string.find(err, 'Unknown Redis', 1, true)
  if unknown or string.find(err, "can't run this command", 1, true) or string.find(err, 'permissions to run', 1, true) then
    local word = (unknown and '?' or '') .. string.lower(name)
    if of == 0 then table.insert(also, word) end
    if of == 1 or of == 3 then table.insert(refused[1], word) end
    if of == 2 or of == 3 then table.insert(refused[2], word) end
    return false
  end
  if of == 1 then own = own + 1 end
  return err == '' or is_of_keys(reply)
end

try(1, 'EXISTS', KEY)
try(1, 'GET', KEY)
try(1, 'LLEN', KEY)
try(1, 'LINDEX', KEY, 0)
try(1, 'LREM', KEY, 0, '')
try(1, 'LPOP', KEY)
try(3, 'TIME')
try(3, 'PTTL', KEY)
try(3, 'PEXPIRE', KEY, 1)
try(3, 'HLEN', KEY)
try(3, 'HMGET', KEY, '')
try(3, 'HDEL', KEY, '')
try(2, 'HGETALL', KEY)
try(0, 'HGETALL', KEY)
try(0, 'TYPE', KEY)
-- The last three create nothing where a string stands, which ends by itself, or what they create is removed.
local removes = try(3, 'DEL', KEY)
local stands = try(3, 'SET', KEY, '', 'PX', 1)
if removes or stands then
  try(1, 'RPUSH', KEY, '')
  try(3, 'HSET', KEY, '', '')
  try(2, 'HINCRBY', KEY, '', 1)
  -- Without it tokens are minted by the clock.
  try(0, 'INCR', KEY)
end
if removes then redis.pcall('DEL', KEY) end

local is_reentrant = #refused[2] == 0 and own == 0
local missing = is_reentrant and {} or refused[1]
if #missing > 0 then
  for _, word in ipairs(also) do table.insert(missing, word) end
end
if is_of_keys(redis.pcall('EXISTS', namespace .. 'lock-core:fence' .. (tag ~= '' and ':' .. tag or ''))) then table.insert(missing, '~') end
if prefix ~= '' and not is_reentrant and is_of_keys(redis.pcall('HDEL', prefix .. 'lock-core:none' .. tag, '')) then table.insert(missing, '%') end
return missing
