//! Each script with each of its commands refused, and on a server that is full: no lock is left without a ttl, no waiter loses
//! its place, and nothing is half counted.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_tests::AclServer;
use lock_tests::scripts::scripts;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

/// The scripts by their names.
const ACQUIRE: &str = "acquire";
const ACQUIRE_ALL: &str = "acquire_all";
const RELEASE: &str = "release";
const PASS: &str = "pass";
const FORCE: &str = "force_release";
const BATCH: &str = "batch";
const EXTEND: &str = "extend";
const ENTER: &str = "reentrant acquire";
const LEAVE: &str = "reentrant release";
const RENEW: &str = "reentrant extend";
const TAKE_AWAY: &str = "reentrant force_release";
const VOTE: &str = "quorum acquire";
const UNVOTE: &str = "quorum release";
const FORCE_VOTE: &str = "quorum force_release";
const HEAL: &str = "quorum heal";

const LOCK: &str = "lock:a";
const QUEUE: &str = "lock-core:queue:{lock:a}";
const WAITERS: &str = "lock-core:waiters:{lock:a}";
const HOLDS: &str = "lock-core:holds:{lock:a}";
const FENCE: &str = "lock-core:fence";
const KEYS: [&str; 4] = [LOCK, QUEUE, WAITERS, FENCE];
const BOTH: [&str; 7] = [
    LOCK,
    "lock:b",
    QUEUE,
    "lock-core:queue:{lock:b}",
    WAITERS,
    "lock-core:waiters:{lock:b}",
    FENCE,
];
const OWNED: [&str; 3] = [LOCK, HOLDS, FENCE];

/// Clients; tokens follow from them.
const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1";
const C: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc:1";
const OWNER: &str = "dddddddd-dddd-4ddd-8ddd-dddddddddddd:9";

/// One call in one state.
struct Case {
    name: &'static str,
    script: &'static str,
    keys: &'static [&'static str],
    args: &'static [&'static str],
    /// Commands that bring about the state. In a word `~` stands for a space, and `SOON` for half a minute from now, in ms.
    state: &'static [&'static str],
}

/// A holds the lock.
const HELD: &str = "SET lock:a aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1 PX 60000";
/// B, of which the server knows a channel, and C, which polls, wait in this order.
const QUEUED: [&str; 5] = [
    "RPUSH lock-core:queue:{lock:a} bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1 cccccccc-cccc-4ccc-8ccc-cccccccccccc:1",
    "HSET lock-core:waiters:{lock:a} bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1 60000~7 cccccccc-cccc-4ccc-8ccc-cccccccccccc:1 60000~7",
    "HSET lock-core:waiters:{lock:a} bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb 9999999999999~heard cccccccc-cccc-4ccc-8ccc-cccccccccccc 9999999999999~",
    "PEXPIRE lock-core:queue:{lock:a} 30000",
    "PEXPIRE lock-core:waiters:{lock:a} 30000",
];
/// C alone waits.
const ONE: [&str; 4] = [
    "RPUSH lock-core:queue:{lock:a} cccccccc-cccc-4ccc-8ccc-cccccccccccc:1",
    "HSET lock-core:waiters:{lock:a} cccccccc-cccc-4ccc-8ccc-cccccccccccc:1 60000~7 cccccccc-cccc-4ccc-8ccc-cccccccccccc 9999999999999~",
    "PEXPIRE lock-core:queue:{lock:a} 30000",
    "PEXPIRE lock-core:waiters:{lock:a} 30000",
];
const BUSY: [&str; 6] = [HELD, QUEUED[0], QUEUED[1], QUEUED[2], QUEUED[3], QUEUED[4]];
const BUSY_ONE: [&str; 5] = [HELD, ONE[0], ONE[1], ONE[2], ONE[3]];
/// The owner has the lock once, through A.
const OWNED_ONCE: [&str; 4] = [
    "HSET lock:a dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 1 lock-core:tenure 1",
    "PEXPIRE lock:a 60000",
    "HSET lock-core:holds:{lock:a} owner dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 fence 1700000000000000 aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1 1",
    "PEXPIRE lock-core:holds:{lock:a} 60000",
];
const OWNED_TWICE: [&str; 4] = [
    "HSET lock:a dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 2 lock-core:tenure 1",
    "PEXPIRE lock:a 60000",
    "HSET lock-core:holds:{lock:a} owner dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 fence 1700000000000000 aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1 1 bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1 1",
    "PEXPIRE lock-core:holds:{lock:a} 60000",
];
/// The owner has the lock three times: through A, which has crashed, through B, and through C, which needs it for less time than
/// it lasts.
const OWNED_THRICE: [&str; 4] = [
    "HSET lock:a dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 3 lock-core:tenure 1",
    "PEXPIRE lock:a 60000",
    "HSET lock-core:holds:{lock:a} owner dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 fence 1700000000000000 aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1 1 bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1 1 cccccccc-cccc-4ccc-8ccc-cccccccccccc:1 1 clients aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa~1;bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb~SOON;cccccccc-cccc-4ccc-8ccc-cccccccccccc~SOON;",
    "PEXPIRE lock-core:holds:{lock:a} 60100",
];
/// A client that knows no holds has it.
const OWNED_ELSEWHERE: [&str; 2] = [
    "HSET lock:a dddddddd-dddd-4ddd-8ddd-dddddddddddd:9 1",
    "PEXPIRE lock:a 60000",
];

const WAIT: [&str; 6] = [A, "60000", "wait", "5000", "other", "7"];
const TAKES_BOTH: [&str; 5] = [
    "other",
    A,
    "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:2",
    "60000",
    "60000",
];
const ENTERS: [&str; 4] = [OWNER, A, "60000", "0"];
const ENTERS_AGAIN: [&str; 4] = [OWNER, C, "60000", "0"];

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let case = |name, script, keys, args, state| Case {
        name,
        script,
        keys,
        args,
        state,
    };
    vec![
        case("acquire, free", ACQUIRE, &KEYS, &WAIT, &[]),
        case("acquire, ours", ACQUIRE, &KEYS, &WAIT, &[HELD]),
        case(
            "acquire, expired before others",
            ACQUIRE,
            &KEYS,
            &WAIT,
            &QUEUED,
        ),
        case("acquire, expired before one", ACQUIRE, &KEYS, &WAIT, &ONE),
        case(
            "acquire, held and queued for",
            ACQUIRE,
            &KEYS,
            &[
                "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:1",
                "60000",
                "wait",
                "5000",
                "",
                "0",
            ],
            &BUSY,
        ),
        case("acquire all, free", ACQUIRE_ALL, &BOTH, &TAKES_BOTH, &[]),
        case(
            "acquire all, one is ours",
            ACQUIRE_ALL,
            &BOTH,
            &TAKES_BOTH,
            &[HELD],
        ),
        case(
            "acquire all, expired before others",
            ACQUIRE_ALL,
            &BOTH,
            &TAKES_BOTH,
            &QUEUED,
        ),
        case(
            "acquire all, held and queued for",
            ACQUIRE_ALL,
            &BOTH,
            &[
                "other",
                "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:1",
                "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:2",
                "60000",
                "60000",
            ],
            &BUSY,
        ),
        case("release, alone", RELEASE, &KEYS, &[A], &[HELD]),
        case("release, to others", RELEASE, &KEYS, &[A], &BUSY),
        case("release, to one", RELEASE, &KEYS, &[A], &BUSY_ONE),
        case("force release, to others", FORCE, &KEYS, &[], &BUSY),
        case("force release, to one", FORCE, &KEYS, &[], &BUSY_ONE),
        case(
            "pass, to others",
            PASS,
            &KEYS,
            &[
                "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:2",
                "60000",
                "wait",
                "5000",
                "",
                "7",
                A,
            ],
            &BUSY,
        ),
        case(
            "pass, to one",
            PASS,
            &KEYS,
            &[
                "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:2",
                "60000",
                "wait",
                "5000",
                "",
                "7",
                A,
            ],
            &BUSY_ONE,
        ),
        case(
            "pass, to itself",
            PASS,
            &KEYS,
            &[
                "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:2",
                "60000",
                "wait",
                "5000",
                "",
                "7",
                A,
            ],
            &[HELD],
        ),
        case(
            "batch",
            BATCH,
            &[FENCE, "lock:b", LOCK, "queue:{lock:b}", QUEUE],
            &["1", B, A, "60000"],
            &[HELD],
        ),
        case("extend", EXTEND, &[LOCK], &[A, "60000"], &[HELD]),
        case("reentrant acquire, free", ENTER, &OWNED, &ENTERS, &[]),
        case(
            "reentrant acquire, once more",
            ENTER,
            &OWNED,
            &ENTERS_AGAIN,
            &OWNED_ONCE,
        ),
        case(
            "reentrant acquire, repeated",
            ENTER,
            &OWNED,
            &ENTERS,
            &OWNED_ONCE,
        ),
        case(
            "reentrant acquire, begun elsewhere",
            ENTER,
            &OWNED,
            &ENTERS,
            &OWNED_ELSEWHERE,
        ),
        case(
            "reentrant release, not the last",
            LEAVE,
            &[LOCK, HOLDS, "free"],
            &[OWNER, A, "PUBLISH"],
            &OWNED_TWICE,
        ),
        case(
            "reentrant acquire, one of its owner has crashed",
            ENTER,
            &OWNED,
            &[
                OWNER,
                "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:1",
                "60000",
                "0",
            ],
            &OWNED_THRICE,
        ),
        case(
            "reentrant release, one of its owner has crashed",
            LEAVE,
            &[LOCK, HOLDS, "free"],
            &[OWNER, B, "PUBLISH"],
            &OWNED_THRICE,
        ),
        case(
            "reentrant release, the last",
            LEAVE,
            &[LOCK, HOLDS, "free"],
            &[OWNER, A, "PUBLISH"],
            &OWNED_ONCE,
        ),
        case(
            "reentrant extend",
            RENEW,
            &[LOCK, HOLDS],
            &[OWNER, A, "60000"],
            &OWNED_ONCE,
        ),
        case(
            "reentrant force release",
            TAKE_AWAY,
            &[LOCK, HOLDS, "free"],
            &["PUBLISH"],
            &OWNED_TWICE,
        ),
        case(
            "vote, free",
            VOTE,
            &KEYS,
            &[A, "60000", "wait 5000 push 7", FENCE],
            &[],
        ),
        case(
            "vote, busy",
            VOTE,
            &KEYS,
            &[
                "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:1",
                "60000",
                "wait 5000 poll 7",
                FENCE,
            ],
            &BUSY,
        ),
        case(
            "vote, free and queued for",
            VOTE,
            &KEYS,
            &[C, "60000", "wait 5000 poll 7", FENCE],
            &QUEUED,
        ),
        case("vote taken back, alone", UNVOTE, &KEYS, &[A], &[HELD]),
        case("vote taken back, offered", UNVOTE, &KEYS, &[A], &BUSY),
        case("vote taken away", FORCE_VOTE, &KEYS, &[""], &BUSY),
        case("vote healed", HEAL, &KEYS, &[A, "60000", FENCE], &[]),
    ]
}

/// Not a command: the server is full.
const MEMORY: &str = "memory";

fn text(case: &Case) -> &'static str {
    &scripts()[case.script].text
}

/// What may be refused to a script: the commands that it names, and memory.
fn commands(script: &str) -> BTreeSet<String> {
    let calls = script.split("call('").skip(1);
    let mut names: BTreeSet<String> = calls
        .map(|rest| rest.split('\'').next().unwrap().to_owned())
        .collect();
    names.insert("PUBLISH".to_owned());
    names.insert(MEMORY.to_owned());
    names
}

struct Rig {
    server: AclServer,
    admin: MultiplexedConnection,
    app: MultiplexedConnection,
}

impl Rig {
    async fn start() -> Self {
        let mut server = AclServer::start("~* &*").await;
        server.allow(["@all"]).await;
        let app = redis::Client::open(server.url()).unwrap();
        Self {
            admin: server.server().connection().await,
            app: app.get_multiplexed_async_connection().await.unwrap(),
            server,
        }
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        let answer = command.arg(&words[1..]).query_async(&mut self.admin).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    async fn set_up(&mut self, case: &Case) {
        self.server.admin(&["FLUSHALL"]).await;
        if case.script.starts_with("quorum") {
            // A node without a counter does not vote.
            let _: Value = self.ask(&["SET", FENCE, "1700000000000000"]).await;
        }
        for line in case.state {
            let in_half_a_minute = (SystemTime::now() + Duration::from_secs(30))
                .duration_since(UNIX_EPOCH)
                .unwrap();
            let soon = in_half_a_minute.as_millis().to_string();
            let word = |word: &str| word.replace('~', " ").replace("SOON", &soon);
            let words: Vec<_> = line.split(' ').map(word).collect();
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            let _: Value = self.ask(&words).await;
        }
    }

    async fn call(&mut self, case: &Case) -> RedisResult<Value> {
        redis::cmd("EVAL")
            .arg(text(case))
            .arg(case.keys.len())
            .arg(case.keys)
            .arg(case.args)
            .query_async(&mut self.app)
            .await
    }

    async fn call_without(&mut self, case: &Case, missing: &[&str]) -> RedisResult<Value> {
        for &what in missing {
            if what == MEMORY {
                self.server
                    .admin(&["CONFIG", "SET", "maxmemory", "1"])
                    .await;
            } else {
                let refuse = format!("-{what}");
                self.server.admin(&["ACL", "SETUSER", "app", &refuse]).await;
            }
        }
        let answer = self.call(case).await;
        self.server
            .admin(&["CONFIG", "SET", "maxmemory", "0"])
            .await;
        self.server.admin(&["ACL", "SETUSER", "app", "+@all"]).await;
        answer
    }

    /// Only the counter of the fencing tokens stays.
    async fn without_ttl(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        let keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        for key in keys.iter().filter(|key| *key != FENCE) {
            let left: i64 = self.ask(&["PTTL", key]).await;
            if left < 0 {
                wrong.push(format!("{key} has no ttl"));
            }
        }
        wrong
    }

    /// How many acquisitions the holds name.
    async fn tokens(&mut self) -> i64 {
        let holds: Vec<String> = self.ask(&["HKEYS", HOLDS]).await;
        let tokens = holds.iter().filter(|token| token.contains(':'));
        i64::try_from(tokens.count()).unwrap()
    }

    /// Where more acquisitions are named than counted, the release of one takes the lock from another.
    async fn named_and_not_counted(&mut self) -> Option<String> {
        let is_hash = async |rig: &mut Self, key| rig.ask::<String>(&["TYPE", key]).await == "hash";
        if !(is_hash(self, LOCK).await && is_hash(self, HOLDS).await) {
            return None;
        }
        let count: Option<i64> = self.ask(&["HGET", LOCK, OWNER]).await;
        let known: bool = self.ask(&["HEXISTS", LOCK, "lock-core:tenure"]).await;
        let named = self.tokens().await;
        (known && named > count.unwrap_or(0))
            .then(|| format!("{named} are named, {count:?} counted"))
    }

    /// What is wrong with what the call has left.
    async fn wrong(&mut self, case: &Case) -> Vec<String> {
        let mut wrong = self.without_ttl().await;
        let keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        let kind: String = self.ask(&["TYPE", LOCK]).await;
        let holder: Option<String> = match &*kind {
            "string" => self.ask(&["GET", LOCK]).await,
            _ => None,
        };
        let queue: Vec<String> = self.ask(&["LRANGE", QUEUE, "0", "-1"]).await;
        let places: Vec<String> = self.ask(&["HKEYS", WAITERS]).await;
        let waited: Vec<&str> = [B, C]
            .into_iter()
            .filter(|token| {
                case.state
                    .iter()
                    .any(|line| line.starts_with("RPUSH") && line.contains(token))
            })
            .filter(|token| holder.as_deref() != Some(token))
            .collect();
        let still: Vec<&str> = queue
            .iter()
            .map(String::as_str)
            .filter(|t| [B, C].contains(t))
            .collect();
        if still
            .iter()
            .filter(|token| holder.as_deref() != Some(token))
            .copied()
            .collect::<Vec<_>>()
            != waited
        {
            wrong.push(format!("{waited:?} waited, {still:?} wait"));
        }
        let is_waiting = |token: &&String| holder.as_deref() != Some(token.as_str());
        for token in queue
            .iter()
            .filter(|token| !places.contains(token))
            .filter(is_waiting)
        {
            wrong.push(format!("{token} is queued on no terms"));
        }
        for token in places
            .iter()
            .filter(|place| place.contains(':') && !queue.contains(place))
        {
            wrong.push(format!("{token} has no place though it seems to have one"));
        }
        let second: Option<String> = self.ask(&["GET", "lock:b"]).await;
        let is_all = case.script == ACQUIRE_ALL && case.state.is_empty();
        if is_all && holder.is_some() != second.is_some() {
            wrong.push(format!("one of two is taken: {holder:?}, {second:?}"));
        }
        if kind == "hash" || keys.iter().any(|key| key == HOLDS) {
            let count: Option<i64> = self.ask(&["HGET", LOCK, OWNER]).await;
            let known: bool = self.ask(&["HEXISTS", LOCK, "lock-core:tenure"]).await;
            let counted = self.tokens().await;
            let elsewhere = i64::from(case.state == OWNED_ELSEWHERE);
            let consistent = count.unwrap_or(0) == counted + elsewhere || (!known && counted == 0);
            if !consistent {
                wrong.push(format!("{count:?} times held, {counted} counted"));
            }
        }
        wrong
    }
}

/// Proves P4.
#[tokio::test]
async fn no_refused_command_leaves_a_lock_without_ttl_or_takes_a_waiters_place() {
    let mut rig = Rig::start().await;
    let client = redis::Client::open(rig.server.server().url()).unwrap();
    let mut heard = client.get_async_pubsub().await.unwrap();
    heard.subscribe("heard").await.unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        rig.set_up(&case).await;
        let answer = rig.call(&case).await;
        assert!(answer.is_ok(), "{}: {answer:?}", case.name);
        wrong.extend(rig.wrong(&case).await);
        for missing in commands(text(&case)) {
            rig.set_up(&case).await;
            let answer = rig.call_without(&case, &[&missing]).await;
            for what in rig.wrong(&case).await {
                wrong.push(format!(
                    "{}, without {missing}: {what}; {answer:?}",
                    case.name
                ));
            }
            if answer.is_ok() {
                continue;
            }
            // Nothing stands in the way of a later call.
            if let Err(error) = rig.call(&case).await {
                wrong.push(format!("{}, again after {missing}: {error}", case.name));
            }
            for what in rig.wrong(&case).await {
                wrong.push(format!("{}, again after {missing}: {what}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A category of an ACL takes several commands away at once, among them what would clean up.
#[tokio::test]
async fn two_commands_refused_at_once_leave_no_key_without_ttl_and_take_no_hold() {
    let mut rig = Rig::start().await;
    let mut wrong = Vec::new();
    for case in cases() {
        let commands: Vec<String> = commands(text(&case)).into_iter().collect();
        for (at, one) in commands.iter().enumerate() {
            for other in &commands[at + 1..] {
                rig.set_up(&case).await;
                let answer = rig.call_without(&case, &[one, other]).await;
                let mut left = rig.without_ttl().await;
                left.extend(rig.named_and_not_counted().await);
                for what in left {
                    let name = case.name;
                    wrong.push(format!(
                        "{name}, without {one} and {other}: {what}; {answer:?}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
