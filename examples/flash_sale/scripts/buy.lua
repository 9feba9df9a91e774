-- Takes one piece and writes its order, or does neither.
-- KEYS: stock, orders
-- ARGV: order id
-- Returns 1 if sold, 0 if sold out.
-- A script runs alone. It does not roll back, so what can fail comes first: a stock that is no number fails
-- before anything is written.
local left = tonumber(redis.call('GET', KEYS[1]))
if not left or left <= 0 then
    return 0
end
redis.call('DECR', KEYS[1])
redis.call('XADD', KEYS[2], '*', 'id', ARGV[1])
return 1
