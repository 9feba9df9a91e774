//! Each script with each of its commands refused, and on a server that is full: no permit is given twice, no waiter loses its place,
//! no key is left without a ttl, and nothing stands in the way of a later call.

use std::collections::{BTreeMap, BTreeSet};

use lock_tests::AclServer;
use lock_tests::scripts::scripts;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, Value};

const LOCK: &str = "lock:a";
const QUEUE: &str = "lock-core:semaphore:queue:{lock:a}";
const WAITERS: &str = "lock-core:semaphore:waiters:{lock:a}";
const FENCE: &str = "lock-core:fence";

/// Clients; tokens follow from them.
const A: &str = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1";
const B: &str = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:1";
const C: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc:1";
const D: &str = "dddddddd-dddd-4ddd-8ddd-dddddddddddd:1";
const E: &str = "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee:1";

/// One call in one state.
struct Case {
    script: &'static str,
    args: Vec<&'static str>,
    /// The permits of each member, of four in all, and whether its lease is over.
    members: Vec<(&'static str, u32, bool)>,
    /// What each waiter asks for. The first is connected, the others poll.
    waiters: Vec<(&'static str, u32)>,
    kind: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |script, args: &[&'static str], members: &[_], waiters: &[_]| Case {
        script,
        args: args.to_vec(),
        members: members.to_vec(),
        waiters: waiters.to_vec(),
        kind: "semaphore",
    };
    let acquire = |token, weight| [token, "60000", "wait", "5000", "", weight, "semaphore", "4"];
    let (held, over) = (false, true);
    let acquires = "permits acquire";
    let of_readers = |case| Case {
        kind: "read-write",
        ..case
    };
    vec![
        case(acquires, &acquire(A, "2"), &[], &[]),
        case(acquires, &acquire(A, "2"), &[(A, 2, held)], &[]),
        case(acquires, &acquire(A, "2"), &[(D, 2, held)], &[]),
        case(acquires, &acquire(A, "2"), &[(D, 3, held)], &[]),
        case(acquires, &acquire(A, "2"), &[(D, 3, held)], &[(B, 4)]),
        case(
            acquires,
            &acquire(A, "2"),
            &[(D, 3, held), (E, 1, over)],
            &[(B, 1), (C, 1)],
        ),
        case(
            acquires,
            &acquire(B, "2"),
            &[(D, 2, over), (E, 2, over)],
            &[(B, 2), (C, 1)],
        ),
        case("permits release", &[A], &[(A, 2, held)], &[]),
        case(
            "permits release",
            &[A],
            &[(A, 2, held), (D, 1, over)],
            &[(B, 2), (C, 2)],
        ),
        case(
            "permits release",
            &[A],
            &[(A, 2, held), (D, 2, held)],
            &[(B, 1), (C, 3)],
        ),
        case("permits release", &[B], &[(D, 2, held)], &[(B, 4), (C, 2)]),
        case("permits extend", &[A, "0", "600000"], &[(A, 2, held)], &[]),
        case(
            "permits force_release",
            &["semaphore"],
            &[(A, 2, held), (D, 2, held)],
            &[(B, 1), (C, 3)],
        ),
        case(
            "permits resize",
            &["semaphore", "6", "4"],
            &[(A, 4, held)],
            &[(B, 1), (C, 3)],
        ),
        of_readers(case(
            "permits reweigh",
            &[A, "1700000000000000", "down"],
            &[(A, 4, held)],
            &[(B, 1), (C, 1)],
        )),
        of_readers(case(
            "permits reweigh",
            &[A, "1700000000000000", "up"],
            &[(A, 1, held)],
            &[],
        )),
        of_readers(case(
            "permits release",
            &[A],
            &[(A, 4, held)],
            &[(B, 1), (C, 4)],
        )),
    ]
}

/// Not a command: the server is full.
const MEMORY: &str = "memory";

/// What may be refused to a script: the commands that it names, and memory.
fn commands(script: &str) -> BTreeSet<&str> {
    let calls = script.split("call('").skip(1);
    let names = calls.map(|rest| rest.split('\'').next().unwrap());
    names
        .chain(["PUBLISH", MEMORY])
        .filter(|name| *name != "TYPE")
        .collect()
}

struct Rig {
    server: AclServer,
    admin: MultiplexedConnection,
    app: MultiplexedConnection,
}

impl Rig {
    async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        let answer = command.arg(&words[1..]).query_async(&mut self.admin).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    async fn now(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&["TIME"]).await;
        seconds * 1000 + micros / 1000
    }

    async fn set_up(&mut self, case: &Case) {
        self.server.admin(&["FLUSHALL"]).await;
        let now = self.now().await;
        let used: u32 = case.members.iter().map(|(_, weight, _)| weight).sum();
        let mut earliest = now + 60_000;
        for (token, weight, is_over) in &case.members {
            let ends = if *is_over { now - 1 } else { now + 60_000 };
            earliest = earliest.min(ends);
            let field = format!("{ends} {weight} 1700000000000000");
            let _: Value = self.ask(&["HSET", LOCK, token, &field]).await;
        }
        if used > 0 {
            let (lives, kind) = (now + 120_000, case.kind);
            let state = format!(
                "{earliest} {lives} {used} {kind} 4 0 1700000000000000 1700000000000000 {D}"
            );
            let _: Value = self.ask(&["HSET", LOCK, "lock", &state]).await;
            let _: Value = self.ask(&["PEXPIREAT", LOCK, &lives.to_string()]).await;
        }
        for (at, (token, weight)) in case.waiters.iter().enumerate() {
            let channel = if at == 0 { "heard" } else { "" };
            let alive = format!("9999999999999 {channel}");
            let _: Value = self.ask(&["RPUSH", QUEUE, token]).await;
            let terms = format!("60000 {weight}");
            let _: Value = self
                .ask(&["HSET", WAITERS, token, &terms, &token[..36], &alive])
                .await;
        }
        for key in [QUEUE, WAITERS] {
            let _: Value = self.ask(&["PEXPIRE", key, "30000"]).await;
        }
    }

    async fn call(&mut self, case: &Case) -> RedisResult<Value> {
        let keys: &[&str] = match case.script {
            "permits extend" => &[LOCK],
            _ => &[LOCK, QUEUE, WAITERS, FENCE],
        };
        let mut call = redis::cmd("EVAL");
        call.arg(&scripts()[case.script].text)
            .arg(keys.len())
            .arg(keys);
        call.arg(&case.args).query_async(&mut self.app).await
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

    /// What is wrong with what the call has left.
    async fn wrong(&mut self, case: &Case, missing: &[&str]) -> Vec<String> {
        let mut wrong = Vec::new();
        let keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        for key in keys.iter().filter(|key| *key != FENCE) {
            let left: i64 = self.ask(&["PTTL", key]).await;
            if left < 0 {
                wrong.push(format!("{key} has no ttl"));
            }
        }
        let now = self.now().await;
        let fields: BTreeMap<String, String> = self.ask(&["HGETALL", LOCK]).await;
        let number = |field: &str, at: usize| {
            let word = field.split(' ').nth(at).unwrap();
            word.parse::<u64>().unwrap()
        };
        let members = fields.iter().filter(|(token, _)| token.len() > 36);
        let live: BTreeMap<&str, &str> = members
            .filter(|(_, field)| number(field, 0) > now)
            .map(|(token, field)| (token.as_str(), field.as_str()))
            .collect();
        let sum: u64 = live.values().map(|field| number(field, 1)).sum();
        if let Some(state) = fields.get("lock") {
            let (lives, used, max) = (number(state, 1), number(state, 2), number(state, 4));
            let key_ends = now.saturating_add_signed(self.ask(&["PTTL", LOCK]).await);
            if sum > max || used < sum {
                wrong.push(format!("{sum} are held, {used} counted, of {max}"));
            }
            for (token, field) in &live {
                if number(field, 0) > lives.min(key_ends + 50) {
                    wrong.push(format!("{token} outlives the key"));
                }
            }
        } else if !live.is_empty() {
            wrong.push(format!("members without a state: {live:?}"));
        }
        let queue: Vec<String> = self.ask(&["LRANGE", QUEUE, "0", "-1"]).await;
        let terms: Vec<String> = self.ask(&["HKEYS", WAITERS]).await;
        let terms: BTreeSet<_> = terms.iter().filter(|field| field.len() > 36).collect();
        // A place without terms counts as dead: that of a waiter that left, and only in part.
        let placed = queue
            .iter()
            .filter(|token| **token != case.args[0] || terms.contains(token));
        if terms != placed.collect() {
            wrong.push(format!("{queue:?} wait, on terms {terms:?}"));
        }
        // Where nothing can be undone, a waiter holds permits and waits: it finds them when it asks.
        let undoes = !missing.contains(&"HDEL");
        if undoes && queue.iter().any(|token| live.contains_key(token.as_str())) {
            wrong.push(format!("{queue:?} wait, and hold {live:?}"));
        }
        let mut waited: Vec<&str> = case.waiters.iter().map(|(token, _)| *token).collect();
        waited.retain(|token| !live.contains_key(token) && case.args[0] != *token);
        let still: Vec<&str> = queue.iter().map(String::as_str).collect();
        let kept: Vec<&str> = still
            .into_iter()
            .filter(|token| waited.contains(token))
            .collect();
        if missing.len() < 2 && kept != waited {
            wrong.push(format!("{waited:?} waited, {kept:?} wait"));
        }
        wrong
    }
}

async fn rig() -> Rig {
    let mut server = AclServer::start("~* &*").await;
    server.allow(["@all"]).await;
    let app = redis::Client::open(server.url()).unwrap();
    Rig {
        admin: server.server().connection().await,
        app: app.get_multiplexed_async_connection().await.unwrap(),
        server,
    }
}

/// Proves P1, P4.
#[tokio::test]
async fn no_refused_command_gives_a_permit_twice_or_takes_a_place() {
    let mut rig = rig().await;
    let client = redis::Client::open(rig.server.server().url()).unwrap();
    let mut heard = client.get_async_pubsub().await.unwrap();
    heard.subscribe("heard").await.unwrap();
    let mut wrong = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        let name = format!("case {number}, {}", case.script);
        rig.set_up(case).await;
        let answer = rig.call(case).await;
        assert!(answer.is_ok(), "{name}: {answer:?}");
        for what in rig.wrong(case, &[]).await {
            wrong.push(format!("{name}: {what}; {answer:?}"));
        }
        for missing in commands(&scripts()[case.script].text) {
            rig.set_up(case).await;
            let answer = rig.call_without(case, &[missing]).await;
            for what in rig.wrong(case, &[missing]).await {
                wrong.push(format!("{name}, without {missing}: {what}; {answer:?}"));
            }
            if answer.is_ok() {
                continue;
            }
            if let Err(error) = rig.call(case).await {
                wrong.push(format!("{name}, again after {missing}: {error}"));
            }
            for what in rig.wrong(case, &[missing]).await {
                wrong.push(format!("{name}, again after {missing}: {what}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A category of an ACL takes several commands away at once, among them what would clean up. Proves P1.
#[tokio::test]
async fn two_refused_commands_give_no_permit_twice() {
    let mut rig = rig().await;
    let mut wrong = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        let commands: Vec<_> = commands(&scripts()[case.script].text).into_iter().collect();
        for (at, one) in commands.iter().enumerate() {
            for other in &commands[at + 1..] {
                rig.set_up(case).await;
                let answer = rig.call_without(case, &[one, other]).await;
                for what in rig.wrong(case, &[one, other]).await {
                    if !what.contains("wait, ") {
                        wrong.push(format!(
                            "case {number}, without {one} and {other}: {what}; {answer:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
