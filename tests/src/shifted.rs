//! A server whose wall clock a test sets.
//!
//! libfaketime does the same for more programs, and hangs in a server that is
//! linked to a shared jemalloc, as Debian's is.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::binary::ServerBinary;

const SOURCE: &str = include_str!("clock_shift.c");

/// How far the wall clock of a server is off. Its monotonic clock stays right.
///
/// It has to live as long as a server of its [`program`](Self::program) may
/// be restarted: on drop the program is removed.
#[derive(Debug)]
#[must_use = "a server has to run its program"]
pub struct ShiftedClock {
    folder: PathBuf,
    file: File,
}

impl ShiftedClock {
    /// Builds a program that is this server with a clock of its own, which is
    /// right at first.
    ///
    /// # Panics
    ///
    /// When there is no C compiler (`CC`, else `cc`), or it refuses.
    pub fn of(server: &ServerBinary) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lock-tests-clock-{}-{count}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
        let file = File::create(folder.join("shift")).expect("the folder is new");
        let clock = Self { folder, file };
        clock.set(0);
        clock.compile();
        clock.write_program(server);
        clock
    }

    /// What to start, see [`TestServerBuilder::binary`](crate::TestServerBuilder::binary).
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.folder.join("server")
    }

    /// Makes the clock jump: from now on it is off by this much.
    ///
    /// # Panics
    ///
    /// When the disk is full.
    pub fn set(&self, seconds: i64) {
        let micros = seconds * 1_000_000;
        self.file
            .write_all_at(&micros.to_ne_bytes(), 0)
            .expect("a file of eight bytes can be written");
    }

    fn compile(&self) {
        let source = self.folder.join("clock_shift.c");
        fs::write(&source, SOURCE).expect("the folder is new");
        let compiler = env::var_os("CC").filter(|name| !name.is_empty());
        // `CC` may hold options, too.
        let build = "exec ${CC:-cc} -shared -fPIC -O2 -o \"$1\" \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", build]).arg(source).arg(self.library());
        command.env("CC", compiler.unwrap_or_else(|| OsString::from("cc")));
        run(&mut command);
    }

    fn library(&self) -> PathBuf {
        self.folder.join("clock_shift.so")
    }

    /// Writes it in another process: a program that any process can still
    /// write to does not start, and a child that another thread starts just
    /// now has a copy of all our files.
    fn write_program(&self, server: &ServerBinary) {
        let script = format!(
            "#!/bin/sh\nexec env LD_PRELOAD={} CLOCK_SHIFT_FILE={} {} \"$@\"\n",
            quoted(&self.library()),
            quoted(&self.folder.join("shift")),
            quoted(server.path()),
        );
        let write = "printf %s \"$1\" >\"$0\" && chmod +x \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", write]).arg(self.program()).arg(script);
        run(&mut command);
    }
}

impl Drop for ShiftedClock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("every system has a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}");
}

fn quoted(path: &Path) -> String {
    let path = path.to_str().expect("a path of readable letters");
    format!("'{}'", path.replace('\'', r"'\''"))
}
