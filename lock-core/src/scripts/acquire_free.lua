-- Takes a lock that is free and has no queue. In front of the rest of acquire, whose header describes KEYS, ARGV and the reply:
-- the common case does not pay for the functions that are defined there.
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local wanted = tonumber(ARGV[6])
  local minted, _, reserve = mint(KEYS[4], wanted)
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return granted(minted, reserve, wanted)
end

