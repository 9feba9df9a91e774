//! Each script with each of its commands refused, and on a server that is full: no key is left without a ttl, no waiter loses its
//! place, nothing is half counted or granted twice, and nothing stands in the way of a later call.
//!
//! A file has the table of the states of one kind of lock, and says what must hold of it.

mod exclusive;
mod permits;
mod reentrant;
mod rig;

use lock_tests::kit::FENCE;
use rig::{Case, Rig};

fn cases() -> impl Iterator<Item = Case> {
    let tables = [exclusive::cases(), reentrant::cases(), permits::cases()];
    tables.into_iter().flatten()
}

/// It gives no permit twice either. Proves P1, P4.
#[tokio::test]
async fn no_refused_command_leaves_a_key_without_ttl_or_takes_a_waiters_place() {
    let mut rig = Rig::start().await;
    let _subscriber = rig.subscriber().await;
    for case in cases() {
        rig.set_up(&case).await;
        let answer = rig.call(&case).await;
        assert!(answer.is_ok(), "{case:?}: {answer:?}");
        rig.look(&case, &[], &format!("{answer:?}")).await;
        for refused in case.refusable() {
            rig.set_up(&case).await;
            let answer = rig.call_without(&case, &[&refused]).await;
            if case.state.is_empty() && refused.contains('|') {
                let left = rig.keys().await;
                assert_eq!(left, [FENCE], "{refused}: the first write was allowed");
            }
            rig.look(&case, &[&refused], &format!("{answer:?}")).await;
            if answer.is_err() {
                let again = rig.call(&case).await;
                if again.is_err() {
                    rig.wrong("a later call is refused");
                }
                rig.look(&case, &[&refused], &format!("then {again:?}"))
                    .await;
            }
        }
    }
    rig.finish();
}

/// A category of an ACL takes several commands away at once, among them the commands that would clean up. Proves P1.
#[tokio::test]
async fn two_refused_commands_leave_no_key_without_ttl_and_give_nothing_twice() {
    let mut rig = Rig::start().await;
    for case in cases() {
        let refusable = case.refusable();
        for (at, one) in refusable.iter().enumerate() {
            for other in &refusable[at + 1..] {
                rig.set_up(&case).await;
                let answer = rig.call_without(&case, &[one, other]).await;
                rig.look(&case, &[one, other], &format!("{answer:?}")).await;
            }
        }
    }
    rig.finish();
}
