-- Releases a lock without a queue that the token holds. It is placed before the rest of release, whose header describes KEYS,
-- ARGV and the reply, so that the common case does not define the functions of that part. For that part it leaves the holder
-- in `holder` and, if the holder is the token, in `head` the token that it has taken off the queue.
local holder, head = redis.pcall('GET', KEYS[1]), nil
if holder == ARGV[1] then
  -- A server short of memory still allows the first write.
  head = redis.pcall('LPOP', KEYS[2])
  if type(head) == 'table' then
    -- Data of another type is not a queue, and does not prevent the release.
    if not string.find(head.err, 'WRONGTYPE', 1, true) then return head end
    head = false
  end
  if not head then
    redis.call('DEL', KEYS[1], KEYS[3])
    -- Of an election: the record of its leader, and its channel.
    if KEYS[5] then
      redis.pcall('DEL', KEYS[5])
      redis.pcall('PUBLISH', KEYS[5], '0')
    end
    return 1
  end
end

