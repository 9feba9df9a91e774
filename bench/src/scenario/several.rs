//! Several locks at once: (k).

use std::time::Duration;

use anyhow::Result;

use super::contest::{figures, note};
use super::{Figures, Kind, Step};
use crate::contestant::Who;
use crate::options::Options;
use crate::stage::Stage;
use crate::worker::Contend;

const PROCESSES: usize = 8;
const TASKS: usize = 2;
const WARM_UP: Duration = Duration::from_millis(400);
const SPAN: Duration = Duration::from_secs(3);

/// How long each has its locks.
pub(crate) const HOLDS: [(&str, Duration); 2] = [
    ("hold 0", Duration::ZERO),
    ("hold 1 ms", Duration::from_millis(1)),
];

pub(super) struct Spec {
    pub(super) who: Who,
    inside: Duration,
}

pub(super) fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (variant, inside) in HOLDS {
        for who in [Who::OursMulti, Who::RedissonMulti] {
            steps.push(Step {
                scenario: "k",
                variant: variant.to_owned(),
                kind: Kind::Several(Spec { who, inside }),
            });
        }
    }
    steps
}

impl Spec {
    pub(super) async fn measure(
        &self,
        options: &Options,
        stage: &mut Stage,
    ) -> Result<(Figures, Option<String>)> {
        let work = Contend {
            urls: vec![stage.server().url()],
            who: self.who,
            key: "bench:hot".to_owned(),
            apart: false,
            tasks: TASKS,
            inside: self.inside,
            outside: Duration::ZERO,
        };
        let shorter = if options.quick { 4 } else { 1 };
        let contest = stage
            .contest(vec![work; PROCESSES], WARM_UP / shorter, SPAN / shorter)
            .await?;
        // Those with other locks hold at the same time.
        Ok((figures(&contest), note(&contest, true)))
    }
}
