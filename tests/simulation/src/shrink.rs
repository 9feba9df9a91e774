//! Making a run that shows something smaller: fewer operations, fewer faults, fewer tasks.

use crate::meter::Finding;
use crate::run::Report;
use crate::{plan, quorum, run};

/// Runs that are tried at the most.
const TRIES: usize = 400;

/// A plan, from which something can be left out.
pub trait Drawn: Clone {
    /// Carries it out.
    fn run(&self, keep_trace: bool) -> Report;

    /// How long its lists are: the operations of each task, then the faults.
    fn lens(&self) -> Vec<usize>;

    /// Leaves out a stretch of one of these lists.
    fn remove(&mut self, list: usize, at: usize, many: usize);
}

/// A plan of either kind: they have the same lists.
macro_rules! drawn {
    ($plan:ty, $run:expr) => {
        impl Drawn for $plan {
            fn run(&self, keep_trace: bool) -> Report {
                $run(None, self, keep_trace)
            }

            fn lens(&self) -> Vec<usize> {
                let tasks = self.processes.iter().flat_map(|process| &process.tasks);
                let tasks = tasks.map(Vec::len);
                tasks.chain([self.incidents.len()]).collect()
            }

            fn remove(&mut self, list: usize, at: usize, many: usize) {
                let mut tasks = self.processes.iter_mut().flat_map(|it| &mut it.tasks);
                match tasks.nth(list) {
                    Some(ops) => drop(ops.drain(at..(at + many).min(ops.len()))),
                    None => {
                        let end = (at + many).min(self.incidents.len());
                        self.incidents.drain(at..end);
                    }
                }
            }
        }
    };
}

drawn!(plan::Plan, run::run_for);
drawn!(quorum::Plan, quorum::run);

/// The smallest plan found that shows the same rule broken, and what it shows.
#[must_use]
pub fn shrink<P: Drawn>(plan: &P, finding: &Finding) -> (P, Finding) {
    let mut best = (plan.clone(), finding.clone());
    let mut tries = 0;
    loop {
        let size = size(&best.0);
        for parts in [2, 4, 8, 32, usize::MAX] {
            thin(&mut best, parts, &mut tries);
        }
        if self::size(&best.0) == size || tries >= TRIES {
            return best;
        }
    }
}

fn size(plan: &impl Drawn) -> usize {
    plan.lens().iter().sum()
}

/// Leaves out one stretch after the other of so many: of the faults, and of the operations of each task.
fn thin<P: Drawn>(best: &mut (P, Finding), parts: usize, tries: &mut usize) {
    for list in 0..best.0.lens().len() {
        let mut at = 0;
        loop {
            let len = best.0.lens()[list];
            let stretch = (len / parts).max(1);
            if at >= len || *tries >= TRIES {
                break;
            }
            let mut smaller = best.0.clone();
            smaller.remove(list, at, stretch);
            *tries += 1;
            match smaller.run(false).finding {
                Some(finding) if finding.rule == best.1.rule => *best = (smaller, finding),
                _ => at += stretch,
            }
        }
    }
}
