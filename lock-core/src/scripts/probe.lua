-- Tries each command that a lock needs, on a key of lock-core that does not exist.
--
-- ARGV  1 the namespace, the beginning of that key
--       2 its end: in a cluster a tag, so that the key is in a slot of this node; otherwise left out
--
-- Returns what this user lacks: the names of the commands that it may not run, `?` and the name of each that the server does not
-- know (it was renamed), and `~` if it may not use the counter of fencing tokens, which every lock needs. Nothing
-- for a user of the reentrant lock alone: it may run every command of that lock, and no command that only the exclusive lock needs.
-- Any other refusal (a key outside the user's pattern, a full server) proves nothing. The text of a refusal does not name the command.
--
-- Atomic, so that no other client sees the key. The script removes it.
local namespace, tag = ARGV[1], ARGV[2]
local KEY = namespace .. 'lock-core:probe' .. (tag or '')
local refused = {{}, {}}
-- Number of commands of the exclusive lock alone that were not refused.
local own = 0

-- `of` is 1 or 2 for a command of one kind of lock, 3 for a command of both.
local function try(of, name, ...)
  local reply = redis.pcall(name, ...)
  local err = type(reply) == 'table' and reply.err
  if not err then
    if of == 1 then own = own + 1 end
    return true
  end
  local unknown = string.find(err, 'Unknown Redis', 1, true)
  if unknown or string.find(err, "can't run this command", 1, true) or string.find(err, 'permissions to run', 1, true) then
    for kind = 1, 2 do
      if of == kind or of == 3 then table.insert(refused[kind], (unknown and '?' or '') .. string.lower(name)) end
    end
  end
  return false
end

-- Whether an error says that the keys of a command are not the user's.
local function is_of_keys(reply)
  local err = type(reply) == 'table' and reply.err or ''
  return string.find(err, 'one of the keys', 1, true) or string.find(err, 'access a key', 1, true)
end

if is_of_keys(redis.pcall('EXISTS', namespace .. 'lock-core:fence' .. (tag and ':' .. tag or ''))) then return {'~'} end

try(1, 'EXISTS', KEY)
try(1, 'GET', KEY)
try(1, 'LLEN', KEY)
try(1, 'LINDEX', KEY, 0)
try(1, 'LREM', KEY, 0, '')
try(1, 'LPOP', KEY)
try(3, 'TIME')
try(3, 'PTTL', KEY)
try(3, 'PEXPIRE', KEY, 1)
try(3, 'SET', KEY, '', 'XX', 'PX', 1)
try(3, 'HLEN', KEY)
try(3, 'HMGET', KEY, '')
try(3, 'HDEL', KEY, '')
try(2, 'HGETALL', KEY)
-- The last three create the key, so they are tried only if it can be removed.
if try(3, 'DEL', KEY) then
  if try(1, 'RPUSH', KEY, '') then redis.call('DEL', KEY) end
  if try(3, 'HSET', KEY, '', '') then redis.call('DEL', KEY) end
  if try(2, 'HINCRBY', KEY, '', 1) then redis.call('DEL', KEY) end
end
if #refused[2] == 0 and own == 0 then return {} end
return refused[1]
