-- Tells the client of the first waiter that its turn will come soon, so that it is awake by then.
--
-- KEYS  1 queue
-- ARGV  1 prefix of the clients' channels
-- Returns 1 told, 0 nobody waits
--
-- Atomic because the one that is told is the first. It may be dead, or leave: nothing depends on the message.
local head = redis.call('LINDEX', KEYS[1], 0)
if not head then return 0 end
redis.pcall('PUBLISH', ARGV[1] .. string.sub(head, 1, 36), 'soon ' .. head)
return 1
