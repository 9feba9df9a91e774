//! One task: (a), and the attribute.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Figures, Kind, Step};
use crate::contestant::Who;
use crate::options::Options;
use crate::stage::Stage;
use crate::stats::Sorted;
use crate::worker::{Alternate, Flavor, Side};

/// Half of the way there and back.
pub(super) const FAR: Duration = Duration::from_micros(250);
const CALLS: usize = 25;
/// Where guards are dropped. A contestant whose guards keep the lock then waits for its release.
pub(crate) const LEFT: &str = "multi-thread, lock + drop";
pub(crate) const LEFT_FAR: &str = "multi-thread, lock + drop, 0.5 ms away";
/// Where requests are counted.
const COUNTED: usize = 200;

pub(super) struct Spec {
    flavor: Flavor,
    far: bool,
    sides: Vec<(&'static str, Side)>,
}

pub(super) fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for waits in [false, true] {
        for flavor in Flavor::ALL {
            let body = if waits {
                "a body that waits"
            } else {
                "a body that never waits"
            };
            let sides = vec![
                ("attribute", Side::Annotated { waits }),
                ("guard by hand", Side::ByHand { waits }),
            ];
            let variant = format!("{}, {body}", flavor.name());
            steps.push(step("attribute", variant, flavor, false, sides));
        }
    }
    let all = [Who::Floor, Who::Ours, Who::Rslock, Who::AsyncRedisLock];
    let sides: Vec<_> = all.map(|who| (who.name(), Side::Lock(who))).into();
    let left: Vec<_> = all.map(|who| (who.name(), Side::Left(who))).into();
    let mut near = sides.clone();
    near.push((Who::OursCluster.name(), Side::Lock(Who::OursCluster)));
    for flavor in Flavor::ALL {
        let variant = flavor.name().to_owned();
        steps.push(step("a", variant, flavor, false, near.clone()));
    }
    let flavor = Flavor::MultiThread;
    let blocking = vec![
        ("blocking", Side::Blocking),
        (Who::Ours.name(), Side::Lock(Who::Ours)),
    ];
    for (variant, far) in [("near", false), ("0.5 ms away", true)] {
        let variant = variant.to_owned();
        steps.push(step("m", variant, flavor, far, blocking.clone()));
    }
    for (variant, far) in [(LEFT, false), (LEFT_FAR, true)] {
        steps.push(step("a", variant.to_owned(), flavor, far, left.clone()));
    }
    let variant = "multi-thread, 0.5 ms away".to_owned();
    steps.push(step("a", variant, Flavor::MultiThread, true, sides.clone()));
    for (_, side) in sides {
        if let Side::Lock(who) = side {
            steps.push(Step {
                scenario: "a",
                variant: "requests".to_owned(),
                kind: Kind::Requests(who),
            });
        }
    }
    steps
}

fn step(
    scenario: &'static str,
    variant: String,
    flavor: Flavor,
    far: bool,
    sides: Vec<(&'static str, Side)>,
) -> Step {
    let kind = Kind::Alternate(Spec { flavor, far, sides });
    Step {
        scenario,
        variant,
        kind,
    }
}

impl Spec {
    pub(super) async fn measure(
        &self,
        options: &Options,
        stage: &mut Stage,
    ) -> Result<Vec<(&'static str, Figures)>> {
        let network = if self.far {
            Some(stage.far_away(FAR)?)
        } else {
            None
        };
        let url = network
            .as_ref()
            .map_or_else(|| stage.server().url(), super::super::network::Network::url);
        let work = Alternate {
            urls: vec![url],
            key: "bench:free".to_owned(),
            flavor: self.flavor,
            sides: self.sides.iter().map(|(_, side)| *side).collect(),
            // The same time each, about.
            blocks: match (self.far, options.quick) {
                (false, false) => 400 / self.sides.len(),
                (true, false) => 20,
                (false, true) => 40,
                (true, true) => 8,
            },
            calls: CALLS,
            settle: Duration::ZERO,
            patience: Duration::MAX,
        };
        let times = stage.alternate(work, || ()).await?;
        let found = self.sides.iter().zip(times).map(|((name, _), times)| {
            let times = Sorted::of(times);
            let micros = |percent| times.percentile(percent).map(|time| time as f64 / 1e3);
            let figures = vec![("p50_us", micros(50)), ("p99_us", micros(99))];
            (*name, figures)
        });
        Ok(found.collect())
    }
}

/// What one cycle sends, as the network sees it and as the server counts it.
pub(super) async fn requests(who: Who, stage: &mut Stage) -> Result<Figures> {
    let work = Alternate {
        urls: Vec::new(),
        key: "bench:counted".to_owned(),
        flavor: Flavor::MultiThread,
        sides: vec![Side::Lock(who)],
        blocks: 1,
        calls: COUNTED,
        settle: Duration::ZERO,
        patience: Duration::MAX,
    };
    let (seen, counted) = stage.requests(who, work).await.context("counting")?;
    let each = |count: u64| Some(count as f64 / COUNTED as f64);
    Ok(vec![
        ("requests_seen", each(seen)),
        ("requests_counted", each(counted)),
    ])
}
