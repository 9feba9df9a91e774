//! Helper of the harness's own tests: answers each line, until `exit`.

use std::io::BufRead;
use std::process::ExitCode;

use lock_tests::monotonic_now;

fn main() -> ExitCode {
    let greeting = std::env::var("ECHO_GREETING").unwrap_or_default();
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("ready {greeting} {}", args.join(" "));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "exit" => return ExitCode::from(7),
            "clock" => println!("clock {}", monotonic_now().as_nanos()),
            other => println!("echo {other}"),
        }
    }
    ExitCode::SUCCESS
}
