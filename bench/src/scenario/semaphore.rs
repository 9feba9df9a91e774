//! A semaphore: (j).

use std::time::Duration;

use anyhow::Result;

use super::contest::{PROCESSES, figures, note};
use super::{Figures, Kind, Step};
use crate::contestant::{PERMITS, Who};
use crate::options::Options;
use crate::stage::Stage;
use crate::worker::Contend;

/// Waiters, in all processes together.
pub(crate) const WAITERS: usize = 64;

const INSIDE: Duration = Duration::from_millis(2);
const WARM_UP: Duration = Duration::from_millis(400);
const SPAN: Duration = Duration::from_secs(2);

pub(super) struct Spec {
    pub(super) who: Who,
}

pub(super) fn steps() -> Vec<Step> {
    [Who::OursSemaphore, Who::Redisson]
        .map(|who| Step {
            scenario: "j",
            variant: format!("{WAITERS} waiters, {PERMITS} permits"),
            kind: Kind::Semaphore(Spec { who }),
        })
        .into()
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
            tasks: WAITERS / PROCESSES,
            inside: INSIDE,
            outside: Duration::ZERO,
        };
        let shorter = if options.quick { 4 } else { 1 };
        let contest = stage
            .contest(vec![work; PROCESSES], WARM_UP / shorter, SPAN / shorter)
            .await?;
        let account = &contest.account;
        let permits = f64::from(PERMITS);
        // Less, as the timer of the runtime lets a task sleep for up to a millisecond longer than it asks for.
        let asked_for = account.grants as f64 * INSIDE.as_secs_f64() / account.seconds;
        let mut figures = figures(&contest);
        figures.push(("in_use_percent", Some(account.held / permits * 100.0)));
        figures.push(("asked_for_percent", Some(asked_for / permits * 100.0)));
        // Several hold at a time, as those with a key each do.
        Ok((figures, note(&contest, true)))
    }
}
