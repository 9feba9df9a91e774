-- Notes since when this node belongs to the quorum, by its own clock. A server that restarted empty has lost the note.
--
-- KEYS  1 note
-- ARGV  1 'note' to begin now if there is no note, 'look' to only read it
-- Returns the age of the note in seconds, 0 if there is none
--
-- Atomic so that the first note stands.
local now = redis.call('TIME')[1]
if ARGV[1] == 'note' then redis.call('SET', KEYS[1], now, 'NX') end
return math.max(now - (tonumber(redis.call('GET', KEYS[1]) or now) or now), 0)
