-- Takes permits, or reports why not, or joins the queue. A repeated request with the same token is the refresh of a waiter, or the
-- retry of a call whose reply was lost: it never counts twice.
--
-- KEYS  1 lock  2 queue  3 fence  4 waiters
-- ARGV  1 token  2 ttl, ms  3 kind  4 max  5 weight  6 '<try|wait> <alive for, ms> <channel>', no channel if the client polls
-- Returns one of
--   n                                   granted, with this number
--   {'busy', ms, name}                  not free, and the mode is try: the time until a member may expire, or earlier, and the name
--                                       of the client that was granted permits last
--   {'queued', ms, granted, '', name}   the token is queued: each later grant has a number above `granted`. Only the first waiter is told the
--                                       time until a member may expire, any other at least 1 s
--   {'max', max}                        the semaphore has another number of permits
--   {'too many', max}                   the semaphore has fewer permits than this
--   {'foreign', kind}                   the key is something else
--
-- Atomic because it is one script. A server short of memory refuses to mint a fencing token, and nothing is changed. The permits of a
-- semaphore need none, and begin with a PEXPIRE or a DEL, which such a server allows: it then lets the script finish.
ttl, max, weight = tonumber(ttl), tonumber(max), tonumber(weight)
local mode, alive_for, channel = string.match(ARGV[6], '^(%S+) (%d+) (.*)')

local ends, held, number = open(kind, token, known, state)
if not ends and held then return held end
if ends then
  -- Never shorter: a delayed request may be older than the grant that its client relies on.
  local later = math.max(ends, now + ttl)
  write({token, later .. ' ' .. held .. ' ' .. number}, later)
  -- Another member may have expired: also here, and below, its permits go to the waiters.
  settle()
  return tonumber(number)
end

if max ~= s.max and max ~= s.before then
  -- Waiters that have died keep no number.
  if s.max > 0 then settle() end
  if s.used > 0 or s.before > 0 then return refused_by_replica(waiters) or {'max', s.max} end
  s.max = max
end
if weight > s.max then
  settle()
  return refused_by_replica(waiters) or {'too many', s.max}
end
-- When the script began.
local waiting = keys == (known[1] and 2 or 1)
if waiting and s.used < s.max then
  local done, mine = pcall(serve, token, ttl)
  if not done then return refused(mine) end
  if mine then return tonumber(mine) end
  waiting = redis.call('EXISTS', queue) == 1
end
if not waiting and s.used + weight <= s.max then
  write(admit({}, token, weight, now + ttl), now + ttl)
  return tonumber(s.number)
end

local left = math.max(s.earliest - now, 0)
if mode == 'try' then
  local refused = refused_by_replica(waiters)
  if refused then return refused end
  if s.dirty then write({}, 0) end
  return {'busy', left, name_in(s.token)}
end
if not waiting then redis.call('DEL', waiters) end
local refusal = enqueue(queue, waiters, not waiting, token, ttl, weight, now, alive_for, channel)
if refusal then return refusal end
if s.dirty then write({}, 0) end
-- The head asks when a member may expire, and what fits behind it is granted permits in the same step. The others ask at most each second:
-- there may be thousands behind a member with a short ttl.
if redis.call('LINDEX', queue, 0) ~= token then left = math.max(left, BEHIND) end
return {'queued', left, s.granted, '', name_in(s.token)}
