//! Making a run that shows something smaller: fewer operations, fewer faults, fewer tasks.

use crate::meter::Finding;
use crate::plan::Plan;
use crate::run::run;

/// Runs that are tried at the most.
const TRIES: usize = 400;

/// The smallest plan found that shows the same rule broken, and what it shows.
#[must_use]
pub fn shrink(plan: &Plan, finding: &Finding) -> (Plan, Finding) {
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

fn size(plan: &Plan) -> usize {
    plan.operations() + plan.incidents.len()
}

/// Leaves out one stretch after the other of so many: of the faults, and of the operations of each task.
fn thin(best: &mut (Plan, Finding), parts: usize, tries: &mut usize) {
    let places: Vec<_> = lists(&best.0);
    for place in places {
        let mut at = 0;
        loop {
            let len = len(&best.0, place);
            let stretch = (len / parts).max(1);
            if at >= len || *tries >= TRIES {
                break;
            }
            let mut smaller = best.0.clone();
            remove(&mut smaller, place, at, stretch);
            *tries += 1;
            match run(&smaller, false).finding {
                Some(finding) if finding.rule == best.1.rule => *best = (smaller, finding),
                _ => at += stretch,
            }
        }
    }
}

/// A list in a plan: the faults, or the operations of a task.
#[derive(Clone, Copy)]
enum Place {
    Incidents,
    Operations(usize, usize),
}

fn lists(plan: &Plan) -> Vec<Place> {
    let of = |(index, process): (usize, &crate::plan::ProcessPlan)| {
        let tasks = 0..process.tasks.len();
        tasks
            .map(move |task| Place::Operations(index, task))
            .collect::<Vec<_>>()
    };
    let operations = plan.processes.iter().enumerate().flat_map(of);
    operations.chain([Place::Incidents]).collect()
}

fn len(plan: &Plan, place: Place) -> usize {
    match place {
        Place::Incidents => plan.incidents.len(),
        Place::Operations(process, task) => plan.processes[process].tasks[task].len(),
    }
}

fn remove(plan: &mut Plan, place: Place, at: usize, many: usize) {
    match place {
        Place::Incidents => {
            let end = (at + many).min(plan.incidents.len());
            plan.incidents.drain(at..end);
        }
        Place::Operations(process, task) => {
            let ops = &mut plan.processes[process].tasks[task];
            let end = (at + many).min(ops.len());
            ops.drain(at..end);
        }
    }
}
