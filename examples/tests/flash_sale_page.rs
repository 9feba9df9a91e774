//! The report of the flash sale, opened in a browser that has no network.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use program::{Ended, command};

const PLOTS: [&str; 4] = ["throughput", "latency", "stock", "holders"];
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// What says so where no browser is installed. Not `println`, which the test runner keeps to itself.
fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    };
    let found = NAMES.into_iter().find(runs);
    if found.is_none() {
        let _ = writeln!(
            std::io::stdout(),
            "SKIPPED: flash_sale_page: no browser to look at the report of the flash sale; install Debian's package `chromium`"
        );
    }
    found
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("flash-sale-page-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder of our own");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How many points of a picture are neither grey, black nor white: marks of a plot, for its frame is grey.
fn coloured(picture: &Path) -> usize {
    let decoder = png::Decoder::new(BufReader::new(File::open(picture).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let channels = info.color_type.samples();
    assert!(channels >= 3, "{:?}", info.color_type);
    bytes[..info.buffer_size()]
        .chunks_exact(channels)
        .filter(|point| {
            let (least, most) = (point[..3].iter().min(), point[..3].iter().max());
            most.unwrap() - least.unwrap() > 60
        })
        .count()
}

fn photograph(browser: &str, folder: &Path, page: &Path, plot: &str) -> PathBuf {
    let picture = folder.join(format!("{plot}.png"));
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        // As root in a container there is no sandbox to be had; the page is our own.
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1040,1200",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.join("profile").display()
    ));
    command.arg(format!("--screenshot={}", picture.display()));
    command.arg(format!("file://{}#{plot}", page.display()));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success() && picture.is_file(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    picture
}

#[test]
fn the_page_opens_without_a_network_and_shows_four_plots() {
    let folder = Folder::new();
    let page = folder.0.join("report.html");
    let mut sale = command("flash_sale", None);
    sale.args("--strategy all --stock 30 --buyers 90 --processes 2".split(' '));
    Ended::new(sale.arg("--out").arg(&page).output().unwrap()).success();

    let text = std::fs::read_to_string(&page).unwrap();
    for outside in [
        "http:", "https:", "//", "src=", "href=", "url(", "@import", "<script",
    ] {
        assert!(!text.contains(outside), "{outside} in the report");
    }
    for plot in PLOTS {
        assert!(text.contains(&format!("<figure id=\"{plot}\">")));
    }
    assert_eq!(text.matches("<svg").count(), PLOTS.len());

    let Some(browser) = browser() else { return };
    // A page with a plot that has a legend and no lines, to know how many points that colours.
    let empty = folder.0.join("empty.html");
    let frame = text.split("<polyline").next().unwrap();
    let (head, figure) = frame.split_at(frame.find("<figure id=\"latency\">").unwrap());
    let head = head.split("<h1>").next().unwrap();
    std::fs::write(
        &empty,
        format!("{head}{figure}</svg></figure></body></html>"),
    )
    .unwrap();
    let nothing = coloured(&photograph(browser, &folder.0, &empty, "latency"));
    assert!(nothing < 1000, "a legend has few colours: {nothing}");

    for plot in PLOTS {
        let marks = coloured(&photograph(browser, &folder.0, &page, plot));
        assert!(marks > 2 * nothing.max(500), "{plot} is empty: {marks}");
    }
}
