-- The brief form of acquire, whose header describes it. It is placed before everything else, so that the common case defines no functions.
if not KEYS[4] then
  if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
    -- Before the lock, because a server short of memory refuses it.
    local minted = redis.pcall('INCR', KEYS[3])
    -- A counter out of these bounds is lost, or near its end.
    if type(minted) == 'number' and minted > 1e15 and minted < 9e15 then
      redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
      return minted
    end
  elseif not ARGV[3] then
    return -1
  end
end

