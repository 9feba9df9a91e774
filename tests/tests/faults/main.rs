//! One server, and everything that can go wrong between it and a manager: lost and late messages, outages,
//! states in which a server refuses, callers that vanish.
//!
//! A lock's ttl tells which way it was cleaned up. Where a test says "at once" the ttl is [`support::LONG`],
//! beyond every time limit, so only a clean-up can have removed the key.

mod away;
mod brief;
mod cancel;
mod connections;
mod contract;
mod credentials;
mod garbage;
mod guards;
mod late;
mod messages;
mod outage;
mod ping;
mod polling;
mod reconnect;
mod refusal;
mod refused;
mod release_and_ask;
mod renewal;
mod replies;
mod scripts;
mod shutdown;
mod state;
mod support;
mod takeover;
mod terms;
mod zombie;
