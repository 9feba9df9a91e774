//! The failovers do what they tell.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use program::{Ended, command};

#[test]
fn a_failover_is_followed_by_each_client_and_drawn() {
    let plot = std::env::temp_dir().join(format!("failover-{}.svg", std::process::id()));
    let mut failover = command("failover", None);
    failover.args(["--events", "1", "--plot"]).arg(&plot);
    let output = Ended::new(failover.output().expect("it starts")).success();
    let row = output.lines().find(|line| line.starts_with("  kill"));
    assert_eq!(
        row.expect("the event has a row").split_whitespace().count(),
        15,
        "{output}"
    );
    let drawn = std::fs::read_to_string(&plot).expect("the plot is there");
    std::fs::remove_file(&plot).expect("it was there");
    assert!(
        drawn.starts_with("<svg") && drawn.contains("+switch-master"),
        "{drawn}"
    );
}
