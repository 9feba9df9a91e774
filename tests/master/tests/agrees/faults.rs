//! Servers that refuse.

use fastrand::Rng;

use super::pair::Pair;

/// What is wrong with both.
#[derive(Debug)]
pub(crate) enum Fault {
    Replica,
    OutOfMemory,
    /// The user may not run this command.
    Denied(&'static str),
    NoChannels,
}

/// The commands that the scripts run, and those that run them.
const COMMANDS: [&str; 28] = [
    "get", "set", "del", "exists", "pttl", "pexpire", "time", "lpop", "rpush", "lindex", "lrem",
    "llen", "hset", "hsetnx", "hget", "hmget", "hdel", "hlen", "hkeys", "hgetall", "hexists",
    "hincrby", "publish", "type", "mget", "incrby", "eval", "evalsha",
];

impl Fault {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..10) {
            0..3 => Self::Replica,
            3..6 => Self::OutOfMemory,
            6 => Self::NoChannels,
            _ => Self::Denied(rng.choice(COMMANDS).expect("one")),
        }
    }
}

impl Pair {
    pub(crate) fn break_by(&mut self, fault: &Fault) {
        self.note(&format!("{fault:?}"));
        let faults = self.master.faults();
        match fault {
            Fault::Replica => {
                faults.read_only = true;
                self.admin("REPLICAOF 127.0.0.1 1");
            }
            Fault::OutOfMemory => {
                faults.out_of_memory = true;
                self.admin("CONFIG SET maxmemory 1");
            }
            Fault::Denied(command) => {
                faults.denied.insert(command.to_ascii_uppercase());
                self.admin(&format!("ACL SETUSER app -{command}"));
            }
            Fault::NoChannels => {
                faults.no_channels = true;
                self.admin("ACL SETUSER app resetchannels");
            }
        }
    }

    pub(crate) fn mend(&mut self, fault: &Fault) {
        self.note("mended");
        *self.master.faults() = lock_master::Faults::default();
        match fault {
            Fault::Replica => self.admin("REPLICAOF NO ONE"),
            Fault::OutOfMemory => self.admin("CONFIG SET maxmemory 0"),
            Fault::Denied(_) => self.admin("ACL SETUSER app +@all"),
            Fault::NoChannels => self.admin("ACL SETUSER app allchannels"),
        }
    }
}
