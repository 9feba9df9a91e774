-- Mints the next fencing token. The clock of the server is its floor, so tokens grow even if the counter is lost. The counter
-- is kept `reserve` ahead, for reserved tokens. `t` is the reply of TIME in this script, if it was called. Returns the token
-- and the counter, both as text: to format a number of 16 digits costs as much as a command. '%.0f' because tostring() drops
-- digits above 10^14.
local function mint(fence, reserve, t)
  t = t or redis.call('TIME')
  local minted = t[1] .. string.sub('00000' .. t[2], -6)
  local counter = reserve == 0 and minted or string.format('%.0f', minted + reserve)
  local last = redis.pcall('SET', fence, counter, 'GET')
  if type(last) == 'table' then
    -- Something that is no counter is replaced. Any other refusal comes again.
    redis.call('SET', fence, counter)
    last = nil
  end
  -- Texts of one length are in the order of their numbers.
  if last and (#last ~= #minted or last >= minted) then
    last = tonumber(last) or 0
    if last >= tonumber(minted) then
      minted, counter = string.format('%.0f', last + 1), string.format('%.0f', last + 1 + reserve)
      redis.call('SET', fence, counter)
    end
  end
  return minted, counter
end

