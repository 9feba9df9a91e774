//! The reentrant lock.

use super::rig::{Case, Rig, rows};

const TABLE: &str = "
reentrant acquire       | free                       | @d:9 @A 60000 0   | free
reentrant acquire       | once more                  | @d:9 @C 60000 0   | once
reentrant acquire       | repeated                   | @d:9 @A 60000 0   | once
reentrant acquire       | begun elsewhere            | @d:9 @A 60000 0   | elsewhere
reentrant acquire       | a client of it has crashed | @d:9 @E 60000 0   | thrice
reentrant release       | not the last               | @d:9 @A PUBLISH   | twice
reentrant release       | a client of it has crashed | @d:9 @B PUBLISH   | thrice
reentrant release       | the last                   | @d:9 @A PUBLISH   | once
reentrant extend        | held                       | @d:9 @A 60000     | once
reentrant force_release | held twice                 | PUBLISH           | twice
";

/// A client that knows no holds has the lock.
const ELSEWHERE: &str = "HSET lock:a @d:9 1
    PEXPIRE lock:a 60000";

pub(super) fn cases() -> Vec<Case> {
    rows(TABLE, |state| lines(state).to_owned())
}

fn lines(state: &str) -> &'static str {
    match state {
        "free" => "",
        // Through A.
        "once" => {
            "HSET lock:a @d:9 1 lock-core:tenure 1
            PEXPIRE lock:a 60000
            HSET @holds owner @d:9 fence 1700000000000000 @A 1
            PEXPIRE @holds 60000"
        }
        "twice" => {
            "HSET lock:a @d:9 2 lock-core:tenure 1
            PEXPIRE lock:a 60000
            HSET @holds owner @d:9 fence 1700000000000000 @A 1 @B 1
            PEXPIRE @holds 60000"
        }
        // Through A, which has crashed, through B, and through C, which needs the lock for less time than it lasts.
        "thrice" => {
            "HSET lock:a @d:9 3 lock-core:tenure 1
            PEXPIRE lock:a 60000
            HSET @holds owner @d:9 fence 1700000000000000 @A 1 @B 1 @C 1 clients @a~1;@b~@soon;@c~@soon;
            PEXPIRE @holds 60100"
        }
        "elsewhere" => ELSEWHERE,
        other => panic!("{other}"),
    }
}

/// Where more acquisitions are named than counted, the release of one takes the lock from another.
pub(super) async fn is_counted(rig: &mut Rig, case: &Case, refused: &[&str]) {
    let count: Option<i64> = rig.ask("HGET lock:a @d:9").await;
    let known: bool = rig.ask("HEXISTS lock:a lock-core:tenure").await;
    let holds: Vec<String> = rig.ask("HKEYS @holds").await;
    let named = holds.iter().filter(|name| name.contains(':')).count();
    let named = i64::try_from(named).unwrap();
    let (counted, elsewhere) = (count.unwrap_or(0), i64::from(case.state == ELSEWHERE));
    // Of two refused commands, one may be that of the clean-up: then more are counted, until the lock ends.
    let is_wrong = if refused.len() < 2 {
        counted != named + elsewhere && (known || named > 0)
    } else {
        known && named > counted
    };
    if is_wrong {
        rig.wrong(format!("{named} are named, {count:?} counted"));
    }
}
