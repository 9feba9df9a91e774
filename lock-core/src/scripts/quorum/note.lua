-- The note of a node: a hash that decides whether the node votes.
--
--   run      the run of the server (`run_id` of INFO) that the note was written for
--   noticed  the time at which a client noticed this run, by the clock of the node, ms
--   since    the same during the quarantine; then 0
--   counted  the counter of fencing tokens before the quarantine
--   <ttl>    the time until which this ttl may be in use, by the clock of the node, ms
--
-- A restarted node may have forgotten a vote with any ttl in use. Such a vote matters until its ttl has passed. The quarantine
-- lasts for the longest of these ttls, and the node has no counter until its end. So a vote reads the note only if the counter is
-- not valid.

local NOTE = 'lock-core:quorum'
-- Minimum quarantine, ms. A client notices within half of it that its address leads to another server.
local LEAST_WAIT = 2000

local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- The rest of the quarantine, ms; 0 if there is none; nil if there is no note.
local function wait(now)
  local fields = redis.call('HGETALL', NOTE)
  local note = {}
  for i = 1, #fields, 2 do note[fields[i]] = tonumber(fields[i + 1]) end
  local since = note['since']
  if not since then return nil end
  -- If the clock was set back, the quarantine begins again.
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

