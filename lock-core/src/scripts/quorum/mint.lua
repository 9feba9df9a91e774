-- The next fencing token on this node: above every token that it knows of, at least the `proposed` one, and at least its
-- clock. All nodes are proposed the same token, a little ahead of their clocks, so as a rule they mint the same. The
-- counter is kept `gap` ahead. '%.0f' because tostring() drops digits above 10^14.
local function mint(fence, gap, proposed)
  local t = redis.call('TIME')
  local minted = math.max(t[1] * 1000000 + t[2], proposed)
  local last = tonumber(redis.call('SET', fence, string.format('%.0f', minted + gap), 'GET') or 0) or 0
  if last >= minted then
    minted = last + 1
    redis.call('SET', fence, string.format('%.0f', minted + gap))
  end
  return minted
end

