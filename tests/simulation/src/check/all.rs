//! The request for several locks at once: all are taken, or none. Looked at before and after its script.

use lock_master::{Master, Reply};

use crate::request::{script, shown};
use crate::world::World;

#[derive(Debug, Default)]
pub(super) struct All {
    /// Which of the locks had the token of the request when it came.
    before: Vec<bool>,
}

impl All {
    /// A request is about to be run, or was answered.
    pub(super) fn look(
        &mut self,
        world: &World,
        master: &Master,
        words: &[&[u8]],
        reply: Option<&Reply>,
    ) {
        let [verb, which, count, rest @ ..] = words else {
            return;
        };
        if script(verb, which) != Some("acquire_all") {
            return;
        }
        let keys: usize = String::from_utf8_lossy(count).parse().unwrap_or(0);
        let count = keys.saturating_sub(1) / 3;
        // Behind the channel.
        let tokens = rest.iter().skip(keys + 1).take(count);
        let locks = rest.iter().take(count).zip(tokens);
        let has_it = |(lock, token): (&&[u8], &&[u8])| master.string(lock) == Some(*token);
        let now: Vec<bool> = locks.map(has_it).collect();
        let before = std::mem::replace(&mut self.before, now);
        let Some(reply) = reply else { return };
        let is_granted =
            matches!(reply, Reply::Array(parts) if matches!(parts.first(), Some(Reply::Int(_))));
        for (n, (before, now)) in before.iter().zip(&self.before).enumerate() {
            // A repeated request may hold what it was granted before.
            if is_granted && !now || !is_granted && *now && !before {
                let lock = shown(rest[n], 80);
                let what = format!("{lock}: answered {reply:?}, and the request has it: {now}");
                world.find("all", what);
            }
        }
    }
}
