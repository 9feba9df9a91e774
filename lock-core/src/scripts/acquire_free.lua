-- The same by the clock. It is placed before the rest of acquire, so that the common case does not define the functions of that part,
-- and so that the first write is one that a server short of memory refuses.
if is_free then
  local wanted = tonumber(ARGV[4] or 0)
  local minted, _, reserve = mint(KEYS[3], wanted)
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  -- Of an election, whose script has `lead` before this.
  if KEYS[5] then lead(KEYS[5], ARGV[1], minted, ARGV[5], ARGV[2]) end
  return granted(minted, reserve, wanted)
end

