-- Lets go of the lock and asks for it again with another token of the same client, in one step: the line of
-- a process hands the lock to the next process and takes the last place of the queue. `acquire` stands behind
-- this and does the second half.
--
-- KEYS  as acquire
-- ARGV  as acquire, and 7 the token that lets go
-- Returns what acquire returns, or {'lost'} where that token did not hold the lock; then nothing was asked
--
-- Atomic so that no newcomer comes in between. The first write is one that a server short of memory still allows.
local from = redis.pcall('GET', KEYS[1])
if type(from) == 'table' and not string.find(from.err, 'WRONGTYPE', 1, true) then return from end
if from ~= ARGV[7] then return {'lost'} end
redis.call('DEL', KEYS[1])

