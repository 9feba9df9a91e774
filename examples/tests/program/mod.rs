//! Runs an example as a user would, and gives what it wrote.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    out: String,
    complaint: String,
}

impl Ended {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            status: output.status,
            out: String::from_utf8(output.stdout).expect("the output is text"),
            complaint: String::from_utf8(output.stderr).expect("the complaint is text"),
        }
    }

    /// What it wrote; it must have succeeded, without a complaint and without showing a password.
    pub(crate) fn success(self) -> String {
        let Self {
            status,
            out,
            complaint,
        } = self;
        assert!(status.success(), "{status}\n{out}\n{complaint}");
        assert_eq!(complaint, "");
        out
    }

    /// What it wrote as an error, however it ended.
    pub(crate) fn complaint(&self) -> &str {
        &self.complaint
    }

    /// What it wrote as an error; it must have failed in good order.
    pub(crate) fn failure(self) -> String {
        let Self {
            status,
            out,
            complaint,
        } = self;
        assert_eq!(status.code(), Some(1), "{out}\n{complaint}");
        assert!(
            !format!("{out}{complaint}").contains("secret"),
            "{out}\n{complaint}"
        );
        complaint
    }
}

/// Runs an example to its end.
pub(crate) fn run(example: &str, url: Option<&str>) -> Ended {
    Ended::new(command(example, url).output().expect("the example starts"))
}

/// The command that runs an example, on the given server only.
pub(crate) fn command(example: &str, url: Option<&str>) -> Command {
    let mut command = Command::new(binary(example));
    match url {
        Some(url) => command.env("REDIS_URL", url),
        None => command.env_remove("REDIS_URL"),
    };
    command.stdin(Stdio::null());
    command
}

/// Where the program of an example is. The larger ones are built with their tests. The others are built here, with the features of
/// their own package alone: an older one may lie there from before.
fn binary(example: &str) -> PathBuf {
    static EXAMPLES: LazyLock<PathBuf> = LazyLock::new(build);
    if env!("CARGO_PKG_NAME") == "larger-examples" {
        return profile().join(example);
    }
    EXAMPLES.join(example)
}

/// The folder `target/<profile>`.
fn profile() -> PathBuf {
    let test = env::current_exe().expect("this test has a path");
    let profile = test.ancestors().nth(2);
    profile.expect("it is in target/<profile>/deps").to_owned()
}

fn build() -> PathBuf {
    let profile = profile();
    let target = profile.parent().expect("it is in target/<profile>");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(["build", "--quiet", "-p", "lock-examples", "--examples"])
        .args(["--profile", name])
        .arg("--target-dir")
        .arg(target)
        // `cargo xtask test` sets it for this program; cargo would compile the dependencies anew.
        .env_remove("RUSTC_BOOTSTRAP")
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "the examples are not built"
    );
    profile.join("examples")
}

/// A program that runs, read line by line.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(example: &str, url: Option<&str>) -> Self {
        Self::start_command(command(example, url))
    }

    pub(crate) fn start_command(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let lines = BufReader::new(child.stdout.take().expect("its output was asked for"));
        Self { child, lines }
    }

    /// Its next line with these words.
    pub(crate) fn line_with(&mut self, words: &str) -> String {
        let lines = self.lines.by_ref().lines();
        let mut lines = lines.map(|line| line.expect("a line of text"));
        if let Some(line) = lines.find(|line| line.contains(words)) {
            return line;
        }
        let mut complaint = String::new();
        let errors = self.child.stderr.as_mut().expect("asked for");
        let _ = errors.read_to_string(&mut complaint);
        panic!("it ended without `{words}`: {complaint}")
    }

    /// All processes below it, as the kernel lists them.
    pub(crate) fn family(&self) -> Vec<u32> {
        let mut family = children(self.child.id());
        let mut next = 0;
        while next < family.len() {
            family.extend(children(family[next]));
            next += 1;
        }
        family
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "sh", name, &pid])
            .status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Closes its input, and waits for its end. Returns the rest of its output.
    pub(crate) fn end_of_input(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        let read = self.lines.read_to_string(&mut rest);
        read.expect("its output can be read to the end");
        let status = self.child.wait().expect("own child can be waited for");
        assert!(status.success(), "{status}: {rest}");
        rest
    }

    /// Waits for its end.
    pub(crate) fn end(self) -> Ended {
        let Self { child, mut lines } = self;
        let rest = std::io::copy(&mut lines, &mut std::io::sink());
        rest.expect("its output can be read to the end");
        Ended::new(
            child
                .wait_with_output()
                .expect("own child can be waited for"),
        )
    }
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a process runs; one that only waits to be collected does not.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z')
}
