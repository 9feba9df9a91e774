//! The annotated service does what it tells.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use lock_examples::PrivateServer;

use program::run;

fn service_charges_once_and_reports_once(url: Option<&str>) {
    let output = run("annotated_service", url).success();
    let count = |what: &str| output.lines().filter(|line| line.trim() == what).count();
    assert_eq!(count("201 order 7 is charged"), 1, "{output}");
    assert_eq!(count("200 order 7 was charged before"), 4, "{output}");
    assert_eq!(count("201 order 8 is charged"), 1, "{output}");
    assert_eq!(count("202 a report runs already"), 1, "{output}");
    assert_eq!(count("200 2 orders today"), 1, "{output}");
    for told in [
        "409 Retry-After: 1: lock `order:9` is held by",
        "503 Retry-After: 1: ",
    ] {
        assert!(output.contains(told), "{output}");
    }
}

#[test]
fn the_service_charges_once_and_reports_once() {
    service_charges_once_and_reports_once(None);
}

#[test]
fn the_service_runs_on_the_server_of_redis_url() {
    let server = PrivateServer::start().unwrap();
    service_charges_once_and_reports_once(Some(&server.url()));
}

#[test]
fn an_address_without_a_server_is_one_sentence() {
    // Port 1: nothing has listened there for decades.
    let complaint = run("annotated_service", Some("redis://me:secret@127.0.0.1:1")).failure();
    assert!(complaint.contains("is not available"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn a_url_that_is_none_is_one_sentence() {
    let complaint = run("annotated_service", Some("localhost:6379")).failure();
    assert!(
        complaint.starts_with("annotated_service: lock configuration"),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}
