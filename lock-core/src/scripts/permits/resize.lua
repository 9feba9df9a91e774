-- Changes the number of permits of a semaphore. Permits that are held stay held: with fewer permits, none is granted until enough
-- are released. The number before stays valid for handles until the next resize, and for a day while the semaphore is idle.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters
-- ARGV  1 kind  2 new max  3 max of the handle
-- Returns 1; 0 if nothing is held or remembered, so that there is no number to change: a resize never creates; {'max', max} if the
-- semaphore has another number of permits than both; {'foreign', kind}
--
-- Atomic because waiters that fit now are granted permits in the same step.
local to, from = tonumber(ARGV[2]), tonumber(ARGV[3])
local _, foreign = open(ARGV[1], '')
local refused = foreign or refused_by_replica(lock)
if refused then return refused end
settle()
if s.used == 0 and s.before == 0 then return 0 end
if from ~= s.max and to ~= s.max then return {'max', s.max} end
if to == s.max and (s.before > 0 or from == to) then return 1 end
-- Also if it has this number already, and the one before is not known, as after a loss of data.
s.before, s.max = from, to
write({}, 0)
settle()
return 1
