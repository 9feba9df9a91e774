-- Writes what is left and the order. Checks nothing: it runs by `guard.guarded`, only while the lock is held.
-- KEYS: stock, orders
-- ARGV: what is left, order id
-- Returns 1.
redis.call('SET', KEYS[1], ARGV[1])
redis.call('XADD', KEYS[2], '*', 'id', ARGV[2])
return 1
