use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

/// The two runtimes of tokio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Flavor {
    CurrentThread,
    MultiThread,
}

impl Flavor {
    pub(crate) const ALL: [Self; 2] = [Self::MultiThread, Self::CurrentThread];

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
