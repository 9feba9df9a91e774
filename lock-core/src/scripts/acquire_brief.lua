-- Takes a free lock without a queue for a request in its brief form, which the header of acquire describes. It is placed before
-- everything else, so that the common case defines no functions.
local is_free = redis.call('EXISTS', KEYS[1], KEYS[2]) == 0
if is_free and not ARGV[4] then
  -- Before the lock, because a server short of memory refuses it.
  local minted = redis.pcall('INCR', KEYS[3])
  -- A counter out of these bounds is lost, or near its end: the rest of acquire mints by the clock.
  if type(minted) == 'number' and minted > 1e15 and minted < 9e15 then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return minted
  end
end

