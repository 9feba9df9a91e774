-- Counts the requests of one user in a window that begins with the first.
-- KEYS: the user's counter
-- ARGV: how many are let through, the window in milliseconds
-- Returns 1 for a request that may pass, 0 for one too many.
-- In a script, because a crash between INCR and PEXPIRE would leave a counter that never ends.
local count = redis.call('INCR', KEYS[1])
if count == 1 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if count > tonumber(ARGV[1]) then
    return 0
end
return 1
