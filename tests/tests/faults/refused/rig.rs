//! Calls a script without some of its commands, and looks at what it leaves.

use std::collections::BTreeSet;
use std::fmt;

use lock_tests::AclServer;
use lock_tests::kit::FENCE;
use lock_tests::scripts::scripts;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{FromRedisValue, RedisResult, Value};

use super::{exclusive, permits, reentrant};

/// Not a command: the server is full.
const MEMORY: &str = "memory";

/// One call in one state. In its texts `~` stands for a space inside a word, `''` for an empty word, `@A` to `@E` for tokens of the
/// clients `@a` to `@e`, and other words with an `@` for what [`Rig::set_up`] says.
pub(super) struct Case {
    pub(super) script: &'static str,
    what: &'static str,
    args: &'static str,
    /// Commands that bring about the state, one a line.
    pub(super) state: String,
}

/// The cases of a table with the columns of [`Case`]; `lines` says how its states come about.
pub(super) fn rows(table: &'static str, lines: impl Fn(&str) -> String) -> Vec<Case> {
    let cases = table.trim().lines().map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let [script, what, args, state] = [(); 4].map(|()| cells.next().unwrap());
        Case {
            script,
            what,
            args,
            state: lines(state),
        }
    });
    cases.collect()
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.script, self.what)
    }
}

impl Case {
    fn is_of(&self, kind: &str) -> bool {
        self.script.split(' ').next() == Some(kind)
    }

    fn text(&self) -> &'static str {
        &scripts()[self.script].text
    }

    fn keys(&self) -> &'static str {
        match self.script {
            "acquire_all" => "lock:a lock:b @queue @other_queue @waiters @other_waiters @fence",
            "acquire" | "release" | "pass" | "force_release" => "lock:a @queue @fence @waiters",
            "batch" => "@fence lock:b lock:a @other_queue @queue",
            "extend" | "permits extend" => "lock:a",
            "quorum announce" | "election extend" => "lock:a @leader",
            "election acquire" | "election release" | "election force_release" => {
                "lock:a @queue @fence @waiters @leader"
            }
            "latch count_down" => "@latch",
            "reentrant acquire" => "lock:a @holds @fence",
            "reentrant extend" => "lock:a @holds",
            "reentrant release" | "reentrant force_release" => "lock:a @holds free",
            script if script.starts_with("permits") => "lock:a @queue @fence @waiters",
            _ => "lock:a @queue @waiters @fence",
        }
    }

    /// What may be refused to the script: the commands that it names, and memory; and a command of two keys on one of them, as the
    /// rules of an ACL without the first sign.
    pub(super) fn refusable(&self) -> Vec<String> {
        let calls = self.text().split("call('").skip(1);
        let names = calls.map(|rest| rest.split('\'').next().unwrap());
        let one_key = match self.script {
            "acquire_all" => Some("SET +set|lock-core:fence +set|lock:a"),
            "reentrant acquire" => Some("PEXPIRE +pexpire|lock-core:holds:{lock:a}"),
            _ => None,
        };
        let all: BTreeSet<&str> = names.chain(["PUBLISH", MEMORY]).chain(one_key).collect();
        all.into_iter().map(str::to_owned).collect()
    }
}

pub(super) struct Rig {
    server: AclServer,
    admin: MultiplexedConnection,
    app: MultiplexedConnection,
    /// What the words of the case stand for.
    words: Vec<(String, String)>,
    /// The queue before the call.
    waited: Vec<String>,
    /// What was wrong after this call.
    after: Vec<String>,
    all: Vec<String>,
}

impl Rig {
    pub(super) async fn start() -> Self {
        let mut server = AclServer::start("~* &*").await;
        server.allow(["@all"]).await;
        let app = redis::Client::open(server.url()).unwrap();
        Self {
            admin: server.server().connection().await,
            app: app.get_multiplexed_async_connection().await.unwrap(),
            server,
            words: Vec::new(),
            waited: Vec::new(),
            after: Vec::new(),
            all: Vec::new(),
        }
    }

    /// Hears the messages to the waiter that has a channel: it lives.
    pub(super) async fn subscriber(&self) -> PubSub {
        let client = redis::Client::open(self.server.server().url()).unwrap();
        let mut subscriber = client.get_async_pubsub().await.unwrap();
        subscriber.subscribe("heard").await.unwrap();
        subscriber
    }

    fn expand(&self, line: &str) -> Vec<String> {
        let word = |word: &str| {
            let mut word = word.replace("''", "").replace('~', " ");
            for (name, text) in &self.words {
                word = word.replace(name, text);
            }
            word
        };
        line.split_terminator(' ').map(word).collect()
    }

    /// Runs a command as the administrator.
    pub(super) async fn ask<T: FromRedisValue>(&mut self, line: &str) -> T {
        let words = self.expand(line);
        let mut command = redis::cmd(&words[0]);
        let answer = command.arg(&words[1..]).query_async(&mut self.admin).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(super) async fn now(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask("TIME").await;
        seconds * 1000 + micros / 1000
    }

    pub(super) async fn set_up(&mut self, case: &Case) {
        let now = self.now().await;
        let ours = |name: &str| format!("lock-core:{name}:{{lock:a}}");
        let of_permits = if case.is_of("permits") {
            "semaphore:"
        } else {
            ""
        };
        let words = [
            ("queue", ours(&format!("{of_permits}queue"))),
            ("waiters", ours(&format!("{of_permits}waiters"))),
            ("other_queue", "lock-core:queue:{lock:b}".to_owned()),
            ("other_waiters", "lock-core:waiters:{lock:b}".to_owned()),
            ("holds", ours("holds")),
            ("leader", ours("leader")),
            ("latch", ours("latch")),
            ("fence", FENCE.to_owned()),
            ("over", (now - 1).to_string()),
            ("soon", (now + 30_000).to_string()),
            ("held", (now + 60_000).to_string()),
            ("later", (now + 120_000).to_string()),
        ];
        let clients = ["a", "b", "c", "d", "e"].into_iter().flat_map(|name| {
            let id = [8, 4, 4, 4, 12].map(|length| name.repeat(length)).join("-");
            let token = format!("{id}:1");
            [(name.to_uppercase(), token), (name.to_owned(), id)]
        });
        let words = words.map(|(name, text)| (name.to_owned(), text));
        let words = words.into_iter().chain(clients);
        self.words = words
            .map(|(name, text)| (format!("@{name}"), text))
            .collect();
        self.server.admin(&["FLUSHALL"]).await;
        if case.is_of("quorum") {
            // A node without a counter does not vote.
            let _: Value = self.ask("SET @fence 1700000000000000").await;
        }
        for line in case.state.lines() {
            let _: Value = self.ask(line.trim()).await;
        }
        self.waited = self.ask("LRANGE @queue 0 -1").await;
    }

    pub(super) async fn call(&mut self, case: &Case) -> RedisResult<Value> {
        let keys = self.expand(case.keys());
        let mut call = redis::cmd("EVAL");
        call.arg(case.text()).arg(keys.len()).arg(keys);
        call.arg(self.expand(case.args))
            .query_async(&mut self.app)
            .await
    }

    pub(super) async fn call_without(
        &mut self,
        case: &Case,
        refused: &[&str],
    ) -> RedisResult<Value> {
        for &what in refused {
            if what == MEMORY {
                self.server
                    .admin(&["CONFIG", "SET", "maxmemory", "1"])
                    .await;
            } else {
                let rules = format!("-{what}");
                let rules: Vec<_> = rules.split(' ').collect();
                self.server
                    .admin(&[&["ACL", "SETUSER", "app"], &rules[..]].concat())
                    .await;
            }
        }
        let answer = self.call(case).await;
        self.server
            .admin(&["CONFIG", "SET", "maxmemory", "0"])
            .await;
        self.server.admin(&["ACL", "SETUSER", "app", "+@all"]).await;
        answer
    }

    pub(super) async fn keys(&mut self) -> Vec<String> {
        self.ask("KEYS *").await
    }

    /// Notes something wrong in what the call has left.
    pub(super) fn wrong(&mut self, what: impl Into<String>) {
        self.after.push(what.into());
    }

    /// Looks at what the call has left, which has `said` this.
    pub(super) async fn look(&mut self, case: &Case, refused: &[&str], said: &str) {
        for key in self.keys().await {
            let left: i64 = self.ask(&format!("PTTL {key}")).await;
            if left < 0 && key != FENCE {
                self.wrong(format!("{key} has no ttl"));
            }
        }
        let holders = if case.is_of("permits") {
            permits::holders(self).await
        } else if case.is_of("reentrant") {
            reentrant::is_counted(self, case, refused).await;
            Vec::new()
        } else {
            exclusive::holders(self, case, refused).await
        };
        // Of two refused commands, one may be that of the clean-up: a waiter may then ask for its place again.
        if refused.len() < 2 {
            self.look_at_queue(case, refused, &holders).await;
        }
        let after = self.after.drain(..);
        let after = after.map(|what| format!("{case:?}, without {refused:?}: {what}; {said}"));
        self.all.extend(after);
    }

    async fn look_at_queue(&mut self, case: &Case, refused: &[&str], holders: &[String]) {
        let queue: Vec<String> = self.ask("LRANGE @queue 0 -1").await;
        let mut terms: Vec<String> = self.ask("HKEYS @waiters").await;
        terms.retain(|field| field.contains(':'));
        let args = self.expand(case.args);
        let released = args.first().filter(|_| case.script.ends_with("release"));
        let waits = |token: &&String| !holders.contains(token) && Some(*token) != released;
        // A place without terms counts as dead: that of a waiter that has left, and only in part.
        for token in queue.iter().filter(waits) {
            if !terms.contains(token) {
                self.wrong(format!("{token} is queued on no terms"));
            }
        }
        for token in terms.iter().filter(|token| !queue.contains(token)) {
            self.wrong(format!("{token} has terms, and no place"));
        }
        // Without HDEL nothing can be undone: a waiter that has permits then finds them when it asks.
        let undoes = case.is_of("permits") && !refused.contains(&"HDEL");
        if undoes && queue.iter().any(|token| holders.contains(token)) {
            self.wrong(format!("{queue:?} wait, and {holders:?} hold"));
        }
        let waited = self.waited.clone();
        let waited: Vec<_> = waited.iter().filter(waits).collect();
        let kept: Vec<_> = queue
            .iter()
            .filter(|token| waited.contains(token))
            .collect();
        if kept != waited {
            self.wrong(format!("{waited:?} waited, {kept:?} wait"));
        }
    }

    pub(super) fn finish(self) {
        let all = self.all;
        assert!(all.is_empty(), "{}:\n{}", all.len(), all.join("\n"));
    }
}
