//! One task, and the votes of a majority: (h).

use std::time::Duration;

use anyhow::Result;

use super::alternate::FAR;
use super::{Figures, Kind, Step};
use crate::contestant::Who;
use crate::masters::Masters;
use crate::options::Options;
use crate::stage::Stage;
use crate::stats::Sorted;
use crate::worker::{Alternate, Flavor, Side};

/// How many masters do not answer, and what that is called.
pub(crate) const WEATHERS: [(usize, &str); 3] = [
    (0, "5 masters"),
    (1, "1 of 5 stopped"),
    (2, "2 of 5 stopped"),
];

/// Where a network is between the client and each master.
pub(crate) const APART: &str = "5 masters, 0.5 ms away";

const CONTESTANTS: [Who; 3] = [Who::Floor, Who::Ours, Who::Rslock];
const CALLS: usize = 25;
const BLOCKS: usize = 100;

/// What every side gets to find out that a master has stopped.
const SETTLE: Duration = Duration::from_millis(1200);

/// Enough for a few calls of a second each.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) struct Spec {
    stopped: usize,
    far: bool,
}

pub(super) fn steps() -> Vec<Step> {
    let step = |stopped, far, variant: &str| Step {
        scenario: "h",
        variant: variant.to_owned(),
        kind: Kind::Quorum(Spec { stopped, far }),
    };
    let near = WEATHERS.map(|(stopped, variant)| step(stopped, false, variant));
    near.into_iter().chain([step(0, true, APART)]).collect()
}

impl Spec {
    pub(super) async fn measure(
        &self,
        options: &Options,
        stage: &mut Stage,
    ) -> Result<Vec<(&'static str, Figures)>> {
        let mut masters = Masters::start().await?;
        let networks = if self.far {
            masters.far_away(FAR)?
        } else {
            Vec::new()
        };
        let urls = if self.far {
            let labels = masters.labels().zip(&networks);
            labels
                .map(|(label, network)| format!("{}?node={label}", network.url()))
                .collect()
        } else {
            masters.urls()
        };
        let work = Alternate {
            urls,
            key: "bench:quorum".to_owned(),
            flavor: Flavor::MultiThread,
            sides: CONTESTANTS.map(Side::Lock).into(),
            blocks: if options.quick { 10 } else { BLOCKS },
            calls: CALLS,
            settle: match (self.stopped, options.quick) {
                (0, _) => Duration::ZERO,
                (_, false) => SETTLE,
                (_, true) => SETTLE / 4,
            },
            patience: if options.quick {
                PATIENCE / 4
            } else {
                PATIENCE
            },
        };
        // They stop under connections that are in use, as they would in the middle of a day.
        let stop = || masters.stop(self.stopped);
        let times = stage.alternate(work, stop).await?;
        let found = CONTESTANTS.iter().zip(times).map(|(who, times)| {
            let cycles = times.len() as f64;
            let times = Sorted::of(times);
            let micros = |percent| times.percentile(percent).map(|time| time as f64 / 1e3);
            let figures = vec![
                ("p50_us", micros(50)),
                ("p99_us", micros(99)),
                ("cycles", Some(cycles)),
            ];
            (who.name(), figures)
        });
        Ok(found.collect())
    }
}
