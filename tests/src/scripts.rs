//! The scripts of the library by name, read from its source. A request names its script by a hash.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A script of the library.
#[derive(Debug)]
pub struct LibraryScript {
    /// The files that it is made of, in their order.
    pub files: Vec<String>,
    /// The files, one behind the other.
    pub text: String,
    hash: String,
}

static SCRIPTS: LazyLock<BTreeMap<String, LibraryScript>> = LazyLock::new(read);

/// All scripts by name. Those of the quorum and of the reentrant kind begin with that word.
#[must_use]
pub fn scripts() -> &'static BTreeMap<String, LibraryScript> {
    &SCRIPTS
}

/// The name of the script with this hash or this text.
#[must_use]
pub(crate) fn name_of(called: &str) -> Option<&'static str> {
    let mut scripts = SCRIPTS.iter();
    let found = scripts.find(|(_, script)| script.hash == called || script.text == called);
    found.map(|(name, _)| name.as_str())
}

/// The library makes a script by `script!("name", "file.lua", ..)`.
fn read() -> BTreeMap<String, LibraryScript> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lock-core/src");
    let text = |path: &Path| {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let mut scripts = BTreeMap::new();
    for file in rust_files(source.join("store")) {
        for call in text(&file).split("script!(").skip(1) {
            let (call, _) = call.split_once(')').unwrap_or((call, ""));
            let mut quoted = call.split('"').skip(1).step_by(2).map(str::to_owned);
            let Some(name) = quoted.next() else { continue };
            let files: Vec<_> = quoted.collect();
            let whole: String = files
                .iter()
                .map(|file| text(&source.join("scripts").join(file)))
                .collect();
            let script = LibraryScript {
                files,
                hash: redis::Script::new(&whole).get_hash().to_owned(),
                text: whole,
            };
            assert!(scripts.insert(name, script).is_none());
        }
    }
    assert!(!scripts.is_empty(), "the library has no script");
    scripts
}

fn rust_files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    files
}
