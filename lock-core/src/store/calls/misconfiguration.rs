//! Why a request was not carried out, and never will be until the set-up is repaired.

use std::fmt;
use std::sync::Arc;

/// What is wrong with the set-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misconfiguration {
    /// A whole sentence, which says what to do.
    Sentence(String),
    /// The server has refused.
    Refused {
        server: Option<Arc<str>>,
        /// What it said.
        said: String,
        /// What to do about it.
        advice: String,
    },
    /// These two nodes of a quorum are one server.
    #[cfg(feature = "quorum")]
    SameServer(Arc<str>, Arc<str>),
}

impl Misconfiguration {
    /// The same, with the name of the server.
    pub(super) fn at(self, at: &Arc<str>) -> Self {
        let Self::Refused { said, advice, .. } = self else {
            return self;
        };
        Self::Refused {
            server: Some(Arc::clone(at)),
            said,
            advice,
        }
    }
}

impl From<String> for Misconfiguration {
    fn from(sentence: String) -> Self {
        Self::Sentence(sentence)
    }
}

impl From<&str> for Misconfiguration {
    fn from(sentence: &str) -> Self {
        Self::Sentence(sentence.to_owned())
    }
}

impl fmt::Display for Misconfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sentence(sentence) => f.write_str(sentence),
            Self::Refused {
                server: Some(server),
                said,
                advice,
            } => write!(f, "the server at {server} refused ({said}): {advice}"),
            Self::Refused { said, advice, .. } => {
                write!(f, "the server refused ({said}): {advice}")
            }
            #[cfg(feature = "quorum")]
            Self::SameServer(one, other) => write!(
                f,
                "{one} and {other} lead to the same server, or were exchanged: a quorum needs a server of its own behind each address"
            ),
        }
    }
}
