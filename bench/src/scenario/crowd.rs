//! Many tasks, and the votes of a majority: (i).

use std::time::Duration;

use anyhow::Result;

use super::contest::{figures, note};
use super::quorum::WEATHERS;
use super::{Figures, Kind, Step};
use crate::contestant::Who;
use crate::masters::Masters;
use crate::options::Options;
use crate::stage::Stage;
use crate::worker::Contend;

/// Waiters, in all processes together.
pub(crate) const CROWD: usize = 50;

const PROCESSES: usize = 5;

const INSIDE: Duration = Duration::from_millis(1);
const WARM_UP: Duration = Duration::from_millis(500);

/// Long enough for a contest that stands still to show it.
const SPAN: Duration = Duration::from_secs(6);

pub(super) struct Spec {
    stopped: usize,
}

pub(super) fn steps() -> Vec<Step> {
    let step = |(stopped, variant): (usize, &str)| Step {
        scenario: "i",
        variant: variant.to_owned(),
        kind: Kind::Crowd(Spec { stopped }),
    };
    WEATHERS.map(step).into()
}

impl Spec {
    pub(super) async fn measure(
        &self,
        options: &Options,
        stage: &mut Stage,
    ) -> Result<(Figures, Option<String>)> {
        let mut masters = Masters::start().await?;
        let urls = masters.urls();
        // Before a program connects: one that begins late finds them so.
        masters.stop(self.stopped);
        let works = (0..PROCESSES).map(|process| Contend {
            urls: urls.clone(),
            who: Who::Ours,
            key: "bench:hot".to_owned(),
            apart: false,
            tasks: (CROWD + process) / PROCESSES,
            inside: INSIDE,
            outside: Duration::ZERO,
        });
        let shorter = if options.quick { 4 } else { 1 };
        let contest = stage
            .contest(works.collect(), WARM_UP / shorter, SPAN / shorter)
            .await?;
        Ok((figures(&contest), note(&contest, false)))
    }
}
