-- The term under which the record names the leader with this token, as text; nil if it does not.
local function term_of(leader, token)
  local named = redis.pcall('GET', leader)
  if type(named) ~= 'string' or string.sub(named, 1, #token + 1) ~= token .. ' ' then return nil end
  return string.match(string.sub(named, #token + 2), '^%d+')
end

-- Names the leader of an election beside its lock, for as long as its lease, and tells those who observe. It is placed before the
-- scripts that grant or renew the lock of an election; in those of other kinds `lead` is nil. Without a value the record of the last
-- leader goes: it has resigned, or the next holder is no candidate. Returns the error of a step that was refused. The lock does not
-- depend on it, and each renewal writes the record again.
lead = function(leader, token, term, value, lease)
  if not value then
    redis.pcall('DEL', leader)
    redis.pcall('PUBLISH', leader, '0')
    return
  end
  -- A client that knows the token could release the lock, so the record with it is compared on the server, and no reply has it.
  local record = token .. ' ' .. term .. ' ' .. value
  if redis.pcall('GET', leader) == record then
    -- A server short of memory allows this.
    local kept = redis.pcall('PEXPIRE', leader, lease)
    return type(kept) == 'table' and kept.err
  end
  local set = redis.pcall('SET', leader, record, 'PX', lease)
  if set.err then return set.err end
  redis.pcall('PUBLISH', leader, '0')
end
