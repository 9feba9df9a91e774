use std::fmt;

/// A request a client sent through the proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    connection: u64,
    args: Vec<Vec<u8>>,
}

impl Request {
    pub(super) fn new(connection: u64, args: Vec<Vec<u8>>) -> Self {
        Self { connection, args }
    }

    /// Its words, the command's name first.
    #[must_use]
    pub fn args(&self) -> &[Vec<u8>] {
        &self.args
    }

    /// The word at `index` (0 is the name) as text; empty if there is none.
    #[must_use]
    pub fn arg(&self, index: usize) -> String {
        self.args
            .get(index)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .unwrap_or_default()
    }

    /// The script of the library that it calls, if any.
    #[must_use]
    pub fn script(&self) -> Option<&'static str> {
        match self.name().as_str() {
            "EVALSHA" | "EVAL" => crate::scripts::name_of(&self.arg(1)),
            _ => None,
        }
    }

    /// The command's name in upper case.
    #[must_use]
    pub fn name(&self) -> String {
        self.arg(0).to_ascii_uppercase()
    }

    /// Whether one of its words is `word`.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.args.iter().any(|arg| arg == word.as_bytes())
    }

    /// Which connection it came on; the proxy counts them from 1.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.connection
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}:", self.connection)?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", String::from_utf8_lossy(arg)))
    }
}
