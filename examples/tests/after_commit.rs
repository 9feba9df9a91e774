//! What the example of locks and commits tells is so.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use lock_examples::PrivateServer;

use program::run;

fn no_deposit_is_lost_where_the_lock_outlives_the_commit(url: Option<&str>) {
    let output = run("after_commit", url).success();
    let kept = "released after the commit: the balance is 40";
    assert!(output.contains(kept), "{output}");
    assert!(output.contains("released before it"), "{output}");
}

#[test]
fn a_lock_that_outlives_the_commit_loses_nothing() {
    no_deposit_is_lost_where_the_lock_outlives_the_commit(None);
}

#[test]
fn a_lock_that_outlives_the_commit_loses_nothing_on_the_redis_url_server() {
    let server = PrivateServer::start().unwrap();
    no_deposit_is_lost_where_the_lock_outlives_the_commit(Some(&server.url()));
}

#[test]
fn an_address_without_a_server_is_one_sentence() {
    // Port 1: nothing has listened there for decades.
    let complaint = run("after_commit", Some("redis://me:secret@127.0.0.1:1")).failure();
    assert!(complaint.contains("is not available"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn a_url_that_is_none_is_one_sentence() {
    let complaint = run("after_commit", Some("localhost:6379")).failure();
    assert!(
        complaint.starts_with("after_commit: lock configuration"),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}
