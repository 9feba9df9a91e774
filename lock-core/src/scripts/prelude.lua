-- What the scripts share with each other and with the clients: a test compares these with what the client has.

-- Characters of a client's id, with which each of its tokens begins.
local ID = 36
-- What the channel of a client begins with. Its id follows.
local CHANNELS = 'lock-core:client:'
-- Minimum reserve of a waiter: others may come to wait behind it in its process before it is granted the lock.
local RESERVE = 7
-- Ttl of a queue, ms. Longer than any waiter is believed alive, so that a queue of dead waiters vanishes by itself.
local QUEUE_TTL = 30000
-- How long a node of a quorum keeps its vote for a waiter that it has told, ms.
local OFFER = 50

