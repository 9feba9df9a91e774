-- Changes the number of permits of a semaphore. Permits that are held stay held: with fewer permits, none is granted until enough
-- are released. The number before stays valid for handles until the next resize, and for a day while the semaphore is idle.
--
-- KEYS  1 lock  2 queue  3 waiters  4 fence
-- ARGV  1 kind  2 new max  3 max of the handle
-- Returns 1; {'max', max} if the semaphore has another number of permits than the handle; {'foreign', kind}
--
-- Atomic because waiters that fit now are granted permits in the same step.
local to, from = tonumber(ARGV[2]), tonumber(ARGV[3])
local _, foreign = open(ARGV[1], '')
if foreign then return foreign end
if s.lives == 0 or (s.used == 0 and s.before == 0) then s.max = from end
if to == s.max then return refused_by_replica(lock) or 1 end
if from ~= s.max and from ~= s.before then return {'max', s.max} end
s.before, s.max = s.max, to
write({}, 0)
settle()
return 1
