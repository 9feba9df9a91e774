-- Finds the counter of this node, if it votes. It is placed before the script of one master, whose header describes the rest.
local boot = redis.pcall('HGET', 'lock-core:quorum', 'boot')
KEYS[3] = 'lock-core:quorum:fence:' .. (type(boot) == 'string' and boot or '')

