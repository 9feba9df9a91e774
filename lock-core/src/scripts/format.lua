-- The number of the wire format on this server. A server without one gets that of the client.
--
-- KEYS  1 format
-- ARGV  1 the number that the client writes
-- Returns the number on the server
--
-- Atomic, because two clients may be the first.
local known = redis.call('GET', KEYS[1])
if not known then
  redis.call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
return known
