-- Finds the counter of this node, if it votes, by its note (KEYS 4). It is placed before the script of one master, whose header
-- describes the rest.
local boot = redis.pcall('HGET', KEYS[4], 'boot')
KEYS[4] = KEYS[4] .. ':fence:' .. (type(boot) == 'string' and boot or '')

