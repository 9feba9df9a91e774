-- Takes a lock that is free and has no queue. In front of the rest of acquire, whose header describes KEYS, ARGV and the reply:
-- the common case does not pay for the functions that are defined there.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local minted = mint(KEYS[4], tonumber(ARGV[6]))
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return tonumber(minted)
end

