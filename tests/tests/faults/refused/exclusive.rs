//! The exclusive lock alone, several at once, with votes, and what is announced beside a lock.

use super::rig::{Case, Rig, rows};

const TABLE: &str = "
acquire              | free                  | @A 60000 wait~5000~other 7         | free
acquire              | ours                  | @A 60000 wait~5000~other 7         | held
acquire              | expired before others | @A 60000 wait~5000~other 7         | B and C
acquire              | expired before one    | @A 60000 wait~5000~other 7         | C
acquire              | held and queued for   | @E 60000 wait~5000~ 0              | held, B and C
acquire_all          | free                  | other @A @a:2 60000 60000          | free
acquire_all          | one is ours           | other @A @a:2 60000 60000          | held
acquire_all          | expired before others | other @A @a:2 60000 60000          | B and C
acquire_all          | held and queued for   | other @E @e:2 60000 60000          | held, B and C
release              | alone                 | @A                                 | held
release              | to others             | @A                                 | held, B and C
release              | to one                | @A                                 | held, C
force_release        | to others             |                                    | held, B and C
force_release        | to one                |                                    | held, C
pass                 | to others             | @a:2 60000 wait~5000~ 7 @A         | held, B and C
pass                 | to one                | @a:2 60000 wait~5000~ 7 @A         | held, C
pass                 | to itself             | @a:2 60000 wait~5000~ 7 @A         | held
batch                | take and release      | 1 @B @A 60000                      | held
extend               | held                  | @A 60000                           | held
quorum acquire       | free                  | @A{3} 60000 wait~5000~push~7 @fence | free
quorum acquire       | busy                  | @E{3} 60000 wait~5000~poll~7 @fence | voted, B and C
quorum acquire       | free and queued for   | @C{3} 60000 wait~5000~poll~7 @fence | B and C
quorum release       | alone                 | @A{3}                              | voted
quorum release       | offered               | @A{3}                              | voted, B and C
quorum force_release | offered               | ''                                 | voted, B and C
quorum undo          | alone                 | @A{3}                              | voted
quorum heal          | earlier               | @A{4} 60000 @fence                 | voted
quorum heal          | free                  | @A{3} 60000 @fence                 | free
quorum announce      | the first time        | @A{3} 7 leads                      | voted
quorum announce      | once more             | @A{3} 7 leads                      | voted, named
election acquire     | free                  | @A 60000 wait~5000~other 0 leads   | free
election acquire     | expired before others | @A 60000 wait~5000~other 0 leads   | B and C
election acquire     | expired before one    | @A 60000 wait~5000~other 0 leads   | C
election acquire     | held and queued for   | @E 60000 wait~5000~ 0 leads        | held, B and C
election release     | alone                 | @A                                 | held, named
election release     | to others             | @A                                 | held, named, B and C
election release     | to one                | @A                                 | held, named, C
election force_release | to others           |                                    | held, named, B and C
election force_release | to one              |                                    | held, named, C
election extend      | the first time        | @A 60000 7 leads                   | held
election extend      | once more             | @A 60000 7 leads                   | held, named
latch count_down     | the first             | 2 60000 one                        | free
latch count_down     | the last              | 2 60000 two                        | counted once
";

pub(super) fn cases() -> Vec<Case> {
    rows(TABLE, |state| {
        let parts: Vec<_> = state.split(", ").map(lines).collect();
        parts.join("\n")
    })
}

fn lines(state: &str) -> &'static str {
    match state {
        "free" => "",
        // By A.
        "held" => "SET lock:a @A PX 60000",
        "voted" => "SET lock:a @A{3} PX 60000",
        // B, of which the server knows a channel, and C, which polls, wait in this order.
        "B and C" => {
            "RPUSH @queue @B @C
            HSET @waiters @B 60000~7 @C 60000~7 @b 9999999999999~heard @c 9999999999999~
            PEXPIRE @queue 30000
            PEXPIRE @waiters 30000"
        }
        "C" => {
            "RPUSH @queue @C
            HSET @waiters @C 60000~7 @c 9999999999999~
            PEXPIRE @queue 30000
            PEXPIRE @waiters 30000"
        }
        "named" => "SET @leader @A~7~leads PX 60000",
        "counted once" => {
            "HSET @latch count 2 :one ''
            PEXPIRE @latch 60000"
        }
        other => panic!("{other}"),
    }
}

/// The tokens of the holders of the lock.
pub(super) async fn holders(rig: &mut Rig, case: &Case, refused: &[&str]) -> Vec<String> {
    let holder: Option<String> = rig.ask("GET lock:a").await;
    let second: Option<String> = rig.ask("GET lock:b").await;
    let takes_both = case.script == "acquire_all" && case.state.is_empty();
    // Of two refused commands, one may be that of the clean-up.
    if takes_both && refused.len() < 2 && holder.is_some() != second.is_some() {
        rig.wrong(format!("one of two is taken: {holder:?}, {second:?}"));
    }
    // A vote has its edition behind a brace.
    let token = |holder: String| holder.split('{').next().unwrap_or_default().to_owned();
    holder.map(token).into_iter().collect()
}
