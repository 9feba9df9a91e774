-- Renews votes. It is placed before the script of one master, whose header describes the rest: the last argument is the key of the
-- counter. A node without it answers {'unknown'}, as acquire: what it has may be old.
if redis.call('EXISTS', table.remove(ARGV)) == 0 then return {'unknown'} end

