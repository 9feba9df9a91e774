//! Which server programs the tests run on.

use std::collections::HashMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A server program that was found and asked for its version.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerBinary {
    path: PathBuf,
    product: String,
    version: String,
}

impl ServerBinary {
    /// The default server: `REDIS_SERVER_BIN`, else `redis-server` of `PATH`.
    ///
    /// # Panics
    ///
    /// When there is none. A test without a server fails, it is not skipped.
    #[must_use]
    pub fn find() -> Self {
        let path = env::var_os("REDIS_SERVER_BIN")
            .filter(|path| !path.is_empty())
            .map_or_else(|| PathBuf::from("redis-server"), PathBuf::from);
        Self::at(path)
    }

    /// The server program at `path`.
    ///
    /// # Panics
    ///
    /// When it cannot be run or does not name its version.
    pub fn at(path: impl AsRef<Path>) -> Self {
        static KNOWN: Mutex<Option<HashMap<PathBuf, ServerBinary>>> = Mutex::new(None);
        let path = path.as_ref();
        // Held while a program is asked, so that it is asked once.
        let mut known = KNOWN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(binary) = known.get(path) {
            return binary.clone();
        }
        let binary = Self::ask(path).unwrap_or_else(|why| {
            panic!(
                "the tests need a Redis or Valkey server, but `{}` {why}; \
                 run `cargo xtask test`, or set REDIS_SERVER_BIN",
                path.display()
            )
        });
        known.insert(path.to_owned(), binary.clone());
        binary
    }

    fn ask(path: &Path) -> Result<Self, String> {
        let output = Command::new(path)
            .arg("--version")
            .output()
            .map_err(|error| format!("cannot be run ({error})"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (product, version) =
            parse_version(&text).ok_or_else(|| format!("does not name its version: {text:?}"))?;
        Ok(Self {
            path: path.to_owned(),
            product,
            version,
        })
    }

    /// Where the program is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Product and version, such as `Redis 7.0.15`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.product, self.version)
    }

    /// The first number of the version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.version
            .split('.')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_default()
    }
}

impl fmt::Debug for ServerBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.path.display())
    }
}

/// The servers to run the contract suite on: the default one, then each path
/// of `LOCK_TEST_SERVERS` (separated by colons).
///
/// # Panics
///
/// When one of them is missing.
#[must_use]
pub fn servers() -> Vec<ServerBinary> {
    let mut found = vec![ServerBinary::find()];
    if let Some(paths) = env::var_os("LOCK_TEST_SERVERS") {
        found.extend(
            env::split_paths(&paths)
                .filter(|path| !path.as_os_str().is_empty())
                .map(ServerBinary::at),
        );
    }
    found
}

/// `Redis server v=7.0.15 sha=...` to (`Redis`, `7.0.15`).
fn parse_version(text: &str) -> Option<(String, String)> {
    let product = text.split_whitespace().next()?;
    let version = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="))?;
    Some((product.to_owned(), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_of_both_products_are_read() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        let valkey = "Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(
            parse_version(redis),
            Some(("Redis".into(), "7.0.15".into()))
        );
        assert_eq!(
            parse_version(valkey),
            Some(("Valkey".into(), "8.0.1".into()))
        );
        assert_eq!(parse_version("not a server"), None);
    }
}
