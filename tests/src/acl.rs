//! A server that lets a user do some things only, and the rights that `docs/operating.md` names.

use redis::aio::MultiplexedConnection;

use crate::server::TestServer;

/// The rights in one line of the page for operators.
#[derive(Debug)]
pub struct Rights {
    /// The commands, without the plus.
    pub commands: Vec<&'static str>,
    /// The keys and channels, as in `~lock:* &lock-core:*`.
    pub patterns: String,
}

/// The lines of the page: for a lock on one master, for a reentrant one in addition, for a quorum in addition, for a
/// cluster in addition, for reentrant locks in a cluster in addition.
///
/// # Panics
///
/// When the page has other lines.
#[must_use]
pub fn rights() -> [Rights; 5] {
    let page = include_str!("../../docs/operating.md");
    let lines = page.lines().filter(|line| line.starts_with("ACL SETUSER"));
    let rights = lines.map(|line| {
        let words = || line.split(' ');
        let patterns: Vec<_> = words()
            .filter(|word| word.starts_with(['~', '&']))
            .collect();
        Rights {
            commands: words().filter_map(|word| word.strip_prefix('+')).collect(),
            patterns: patterns.join(" "),
        }
    });
    let rights: Vec<_> = rights.collect();
    rights.try_into().expect("five lines")
}

/// A server and its user `app`, who may do what a test says, and nothing else.
#[derive(Debug)]
pub struct AclServer {
    server: TestServer,
    admin: MultiplexedConnection,
    patterns: &'static str,
}

impl AclServer {
    /// Starts the default server. `patterns` are the keys and channels that the user may touch, from its first
    /// [`allow`](Self::allow) on.
    ///
    /// # Panics
    ///
    /// As [`TestServer::start`].
    pub async fn start(patterns: &'static str) -> Self {
        let server = TestServer::start().await;
        let admin = server.connection().await;
        Self {
            server,
            admin,
            patterns,
        }
    }

    /// The server, which knows no limits to its administrator.
    #[must_use]
    pub fn server(&self) -> &TestServer {
        &self.server
    }

    /// The URL of the user.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://app:secret@{}", self.server.addr())
    }

    /// The user may run these commands from now on, and nothing else.
    ///
    /// # Panics
    ///
    /// When the server knows no such command.
    pub async fn allow(&mut self, commands: impl IntoIterator<Item = &str>) {
        let commands: Vec<_> = commands
            .into_iter()
            .map(|name| format!("+{name}"))
            .collect();
        let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret"];
        words.extend(self.patterns.split(' '));
        words.extend(commands.iter().map(String::as_str));
        self.admin(&words).await;
    }

    /// Runs a command as the administrator.
    ///
    /// # Panics
    ///
    /// When the server refuses it.
    pub async fn admin(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        let () = command
            .arg(&words[1..])
            .query_async(&mut self.admin)
            .await
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
}
