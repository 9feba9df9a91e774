-- The note of a node, a hash: what the node may have forgotten. It decides whether the node votes.
--
--   run      the run of the server (`run_id` of INFO) that the note was written for
--   noticed  when a client noticed that this run is another one, by the clock of the node, ms
--   since    the same until the node votes again; then 0
--   counted  the counter of fencing tokens before the wait
--   <ttl>    until when locks may be taken for this ttl, by the clock of the node, ms
--
-- A forgotten vote may belong to a lock with any ttl in use. It matters for that ttl, or until the ttl is out of use. The node waits
-- for the latest of these times, and has no counter until then. So a vote reads the note only where the counter is missing or unusable.

local NOTE = 'lock-core:quorum'
-- Least wait, ms: a client finds out within half of it that its address leads to another server.
local LEAST_WAIT = 2000

local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- The rest of the wait, ms; 0 if there is none. nil if there is no note.
local function wait(now)
  local fields = redis.call('HGETALL', NOTE)
  local note = {}
  for i = 1, #fields, 2 do note[fields[i]] = tonumber(fields[i + 1]) end
  local since = note['since']
  if not since then return nil end
  -- A clock that was set back begins the wait anew.
  if since > now then
    redis.call('HSET', NOTE, 'since', string.format('%.0f', now))
    since = now
  end
  local left = since + LEAST_WAIT - now
  for name, value in pairs(note) do
    local ttl = tonumber(name)
    if ttl then left = math.max(left, math.min(since + ttl, value) - now) end
  end
  if since > 0 and left <= 0 then redis.call('HSET', NOTE, 'since', '0') end
  return math.max(left, 0)
end

