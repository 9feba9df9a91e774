-- Maximum lead of the counter over the clock of the server, us. A server that loses its counter needs longer to start again.
local LEAD = 1023

-- Mints the next fencing token, and `reserve` reserved tokens behind it, or as many as the lead allows. The clock of the server
-- is the floor, so tokens grow even if the counter is lost. `t` is the reply of TIME in this script, if it was called. Returns
-- the token and the counter, both as text, and the number of reserved tokens. Formatting a number of 16 digits costs as much as a
-- command. '%.0f' because tostring() drops digits above 10^14.
local function mint(fence, reserve, t)
  t = t or redis.call('TIME')
  local minted = t[1] .. string.sub('00000' .. t[2], -6)
  if reserve > LEAD then reserve = LEAD end
  local counter = reserve == 0 and minted or string.format('%.0f', minted + reserve)
  local last = redis.pcall('SET', fence, counter, 'GET')
  if type(last) == 'table' then
    -- Replace a value of another type. After any other refusal this SET fails as well.
    redis.call('SET', fence, counter)
    last = nil
  end
  -- Texts of equal length compare like their numbers.
  if last and (#last ~= #minted or last >= minted) then
    local text = last
    last = tonumber(text) or 0
    local lead = last - minted
    if lead >= 0 then
      -- Lua numbers are not exact above 2^53.
      if last > 2 ^ 53 - 2 * LEAD then
        redis.call('SET', fence, text)
        error(fence .. ' is too close to 2^53: set it to a smaller number, or delete it', 0)
      end
      -- A lead above 1 s does not come from reserved tokens: the clock was set back, and is no floor until it has caught up.
      if lead < 1e6 then reserve = math.max(math.min(reserve, LEAD - lead - 1), 0) end
      minted, counter = string.format('%.0f', last + 1), string.format('%.0f', last + 1 + reserve)
      redis.call('SET', fence, counter)
    end
  end
  return minted, counter, reserve
end

-- The reply for a grant. The client knows how many reserved tokens it has requested.
local function granted(minted, reserve, wanted)
  if reserve == wanted then return tonumber(minted) end
  return {tonumber(minted), reserve}
end

