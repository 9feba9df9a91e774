-- Takes one piece and writes its order, or does neither. A buyer that asks again with the same id gets the same answer, and no
-- second piece. Checks no lock: it runs by `guard.guarded`, only while the segment is held.
-- KEYS: stock of the segment, set of its orders
-- ARGV: order id
-- Returns 1 if the order is written, 0 if the segment is sold out.
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then
    return 1
end
local left = tonumber(redis.call('GET', KEYS[1]))
if not left or left <= 0 then
    return 0
end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 1
