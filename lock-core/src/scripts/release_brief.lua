-- Releases a lock without a queue that the token holds, also in the brief form, which the header of release describes. It is placed
-- before everything else, so that the common case defines no functions. A waiters hash without a queue is stale, and expires.
local holder = redis.pcall('GET', KEYS[1])
if not KEYS[5] and holder == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then return redis.call('DEL', KEYS[1]) end
if not KEYS[3] then return -1 end

