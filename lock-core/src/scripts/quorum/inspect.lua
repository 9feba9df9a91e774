-- Finds the counter of this node, if it votes, by its note (KEYS 3). It is placed before the script of one master, whose header
-- describes the rest.
local boot = redis.pcall('HGET', KEYS[3], 'boot')
KEYS[3] = KEYS[3] .. ':fence:' .. (type(boot) == 'string' and boot or '')

