-- The next fencing token. The server's clock is its floor, so tokens keep growing when the counter
-- itself is lost. The counter is kept `gap` ahead, for tokens that a client gives out by itself.
-- '%.0f' because tostring() drops digits above 10^14. `t` is what TIME said in this script, if it was asked.
local function mint(fence, gap, t)
  t = t or redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  local last = tonumber(redis.call('SET', fence, string.format('%.0f', now + gap), 'GET') or 0) or 0
  if last >= now then
    now = last + 1
    redis.call('SET', fence, string.format('%.0f', now + gap))
  end
  return now
end

