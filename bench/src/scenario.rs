//! What all scenarios have in common.

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};

use crate::rounds::{Plan, Round};

/// Two ways to the same end, ready to be measured.
pub(crate) trait Scenario {
    /// One word for what is measured.
    fn name(&self) -> &'static str;

    /// Where, or on what terms.
    fn variant(&self) -> String;

    /// The side that is looked at, and the side it is compared with.
    fn sides(&self) -> [&'static str; 2];

    /// The most that the ratio may be.
    fn demanded(&self) -> Option<f64>;

    /// Measures one round.
    fn round(&self, plan: Plan) -> Result<Round>;
}

/// The two runtimes of tokio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flavor {
    CurrentThread,
    MultiThread,
}

impl Flavor {
    pub(crate) const ALL: [Self; 2] = [Self::CurrentThread, Self::MultiThread];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current-thread",
            Self::MultiThread => "multi-thread",
        }
    }

    pub(crate) fn runtime(self) -> std::io::Result<Runtime> {
        match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::MultiThread => Builder::new_multi_thread(),
        }
        .enable_all()
        .build()
    }
}

/// Runs a round as a task, as the work of a service runs: on the multi-thread runtime the thread of `block_on` is not
/// one of the workers.
pub(crate) fn as_task(
    runtime: &Runtime,
    round: impl Future<Output = Result<Round>> + Send + 'static,
) -> Result<Round> {
    runtime.block_on(async { tokio::spawn(round).await? })
}
