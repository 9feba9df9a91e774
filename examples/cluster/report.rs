//! What the workers have seen.

use std::collections::HashMap;

use lock_examples::Table;

use crate::stage::{Micros, Move, now};
use crate::worker::{Hold, Log};

/// A part of the run.
pub(crate) struct Phase {
    name: &'static str,
    from: Micros,
    to: Micros,
    pub(crate) moves: Vec<Move>,
    /// When a master was killed or stopped, and when its replica took over.
    pub(crate) killed: Option<(Micros, Micros)>,
}

impl Phase {
    pub(crate) fn begin(name: &'static str) -> Self {
        Self {
            name,
            from: now(),
            to: 0,
            moves: Vec::new(),
            killed: None,
        }
    }

    pub(crate) fn end(self) -> Self {
        Self { to: now(), ..self }
    }

    /// The time in which the slot was on its way, or its master dead, between two holds.
    fn own_time(&self, slot: usize, (from, to): (Micros, Micros)) -> Micros {
        let overlap = |one: Micros, other: Micros| other.min(to).saturating_sub(one.max(from));
        let moves = self.moves.iter().filter(|one| one.slot == slot);
        let on_its_way: Micros = moves.map(|one| overlap(one.from, one.to)).sum();
        on_its_way
            + self
                .killed
                .map_or(0, |(killed, taken_over)| overlap(killed, taken_over))
    }
}

/// A lock was free for this long while another worker waited for it.
struct Gap {
    all: Micros,
    /// Without the time in which its slot was on its way.
    added: Micros,
}

pub(crate) fn table(phases: &[Phase], log: &Log, slots: &HashMap<String, usize>) -> String {
    let mut by_key: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in &log.holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    for holds in by_key.values_mut() {
        holds.sort_by_key(|hold| hold.from);
    }
    let mut table = Table::new([
        "",
        "s",
        "moves",
        "ms each",
        "worst",
        "holds",
        "lost",
        "two holders",
        "ms at most",
        "falling tokens",
        "free ms p50",
        "p99",
        "worst",
        "beyond the move",
    ]);
    for phase in phases {
        let is_in = |at: Micros| (phase.from..phase.to).contains(&at);
        let (mut gaps, mut holds, mut doubles, mut falling) = (Vec::new(), 0, 0, 0);
        let mut longest = 0;
        for (key, all) in &by_key {
            for pair in all.windows(2).filter(|pair| is_in(pair[1].from)) {
                let [before, after] = [pair[0], pair[1]];
                holds += 1;
                let both = before.to.min(after.to).saturating_sub(after.from);
                doubles += usize::from(both > 0);
                longest = longest.max(both);
                falling += usize::from(after.token <= before.token);
                if after.asked < before.to {
                    let all = after.from.saturating_sub(before.to);
                    let own = phase.own_time(slots[*key], (before.to, after.from));
                    gaps.push(Gap {
                        all,
                        added: all.saturating_sub(own),
                    });
                }
            }
        }
        gaps.sort_by_key(|gap| gap.all);
        let gap = |part: f64| {
            gaps.get((gaps.len() as f64 * part) as usize)
                .map_or(0, |gap| gap.all)
        };
        let mut took: Vec<_> = phase
            .moves
            .iter()
            .map(|moved| moved.to - moved.from)
            .collect();
        took.sort_unstable();
        let lost = log.lost.iter().filter(|(_, at)| is_in(*at)).count();
        let added = gaps.iter().map(|gap| gap.added).max().unwrap_or(0);
        table.row([
            phase.name.to_owned(),
            ((phase.to - phase.from) / 1_000_000).to_string(),
            phase.moves.len().to_string(),
            ms(took.get(took.len() / 2).copied().unwrap_or(0)),
            ms(took.last().copied().unwrap_or(0)),
            holds.to_string(),
            lost.to_string(),
            doubles.to_string(),
            ms(longest),
            falling.to_string(),
            ms(gap(0.5)),
            ms(gap(0.99)),
            ms(gaps.last().map_or(0, |gap| gap.all)),
            ms(added),
        ]);
    }
    table.to_string()
}

pub(crate) fn summary(log: &Log) -> String {
    let held = log.lost.iter().filter(|(key, _)| key.starts_with("held-"));
    let mut text = format!(
        "{} locks were held all the time, {} of these were lost, and {} requests failed.",
        log.kept,
        held.count(),
        log.failed.len()
    );
    if let Some(failed) = log.failed.last() {
        text += "\nThe last failure: ";
        text += failed;
    }
    text
}

fn ms(micros: Micros) -> String {
    format!("{:.1}", micros as f64 / 1000.0)
}
