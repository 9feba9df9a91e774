-- The layout of a lock that several may hold: a semaphore, whose holders have 1 to `max` permits each, and a read-write lock, whose
-- readers have one permit each, and whose writer has all. Placed before each script of such a lock.
--
-- The lock is a hash. A member, which holds permits, has the field of its token: "<deadline> <weight> <number>". The field `lock` is
-- "<earliest> <lives> <used> <kind> <max> <before> <granted> <number> <token>":
--   earliest  no member has an earlier deadline. Before it, no script looks for members that have expired
--   lives     when the key expires. No member has a later deadline
--   used      the sum of the weights, or more: after a refused step (an ACL) until `earliest`, and never less
--   kind      semaphore | read-write
--   max, before               the number of permits, and the one before the last resize, 0 if there was none
--   granted, number, token    of the last grant: a number that grows with each grant, the number of the holder, its token
-- Times are in ms by the clock of the server. Their texts have 13 digits: `..` keeps all of them.
local STATE = '^(%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%S*)'
local MEMBER = '^(%d+) (%d+) (%d+)'

-- Time for which the number of permits before a resize stays known, ms; and a time later than each deadline, whose text is compared.
local KEEP, NEVER = 86400000, '9999999999999'

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
