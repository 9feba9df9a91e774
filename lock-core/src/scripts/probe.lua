-- Tries each command that every lock needs, on a key of ours that does not exist.
--
-- Returns the names of those that this user may not run. Any other refusal (a key outside the user's pattern, a full server)
-- proves nothing. The text of a refusal does not name the command.
--
-- Atomic so that nobody meets the key: no command leaves it behind.
local KEY = 'lock-core:probe'
local refused = {}

local function try(name, ...)
  local reply = redis.pcall(name, ...)
  local err = type(reply) == 'table' and reply.err
  if not err then return true end
  if string.find(err, "can't run this command", 1, true) or string.find(err, 'permissions to run', 1, true) then
    refused[#refused + 1] = string.lower(name)
  end
  return false
end

try('TIME')
try('EXISTS', KEY)
try('GET', KEY)
try('PTTL', KEY)
try('PEXPIRE', KEY, 1)
try('SET', KEY, '', 'XX', 'PX', 1)
try('LLEN', KEY)
try('LINDEX', KEY, 0)
try('LREM', KEY, 0, '')
try('LPOP', KEY)
try('HLEN', KEY)
try('HMGET', KEY, '')
try('HDEL', KEY, '')
-- The last two make the key, so they are tried where it can be removed.
if try('DEL', KEY) then
  if try('RPUSH', KEY, '') then redis.call('DEL', KEY) end
  if try('HSET', KEY, '', '') then redis.call('DEL', KEY) end
end
return refused
