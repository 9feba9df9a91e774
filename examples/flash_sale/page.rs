//! The report: one page that needs no network, no script and no other file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use lock_examples::Outcome;
use lock_plot::escape;

use crate::measure::Sale;
use crate::options::Options;
use crate::plots;
use crate::summary::{HEADS, comparison, headline, remarks, row};

/// The last rules show one plot alone, large, where the address names it: `flash_sale.html#latency`.
const STYLE: &str = "\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 1000px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3em .6em; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
td { white-space: nowrap; }
tr.wrong td { color: #c33; }
figure { margin: 2.5em 0; }
figcaption { margin-bottom: .5em; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: currentColor; }
.grid { stroke: #8884; }
body:has(figure:target) > :not(:target) { display: none; }";

/// The whole page.
pub(crate) fn page(options: &Options, sales: &[Sale]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n");
    let _ = write!(
        page,
        "<meta charset=\"utf-8\">\n<title>Flash sale</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n\
         <h1>Flash sale</h1>\n<p>{}.</p>\n",
        escape(&headline(options))
    );
    table(&mut page, sales);
    for (id, title, about, svg) in [
        (
            "throughput",
            "Pieces sold per second",
            "On a logarithmic scale. What a wrong strategy sells includes what it does not have.",
            plots::throughput(sales),
        ),
        (
            "latency",
            "How long buyers waited for their piece",
            "The share of buyers who had theirs after so long; the scale of time is logarithmic.",
            plots::latency(sales),
        ),
        (
            "stock",
            "Stock over time",
            "Since the doors opened, on a logarithmic scale. A line that rises is a write that was written over.",
            plots::stock(sales),
        ),
        (
            "holders",
            "Who held the lock",
            "A moment from the first half of each sale, a row for each process or segment. Red: two held one lock.",
            plots::holders(sales),
        ),
    ] {
        let _ = write!(
            page,
            "<figure id=\"{id}\">\n<figcaption><b>{title}</b>. {about}</figcaption>\n{svg}</figure>\n"
        );
    }
    page.push_str("<h2>Remarks</h2>\n<ul>\n");
    for sale in sales {
        let remarks = remarks(sale, options.chaos).join("; ");
        let name = sale.strategy.name();
        let about = sale.strategy.about();
        let _ = writeln!(
            page,
            "<li><b>{}</b> {}.<br>{}.</li>",
            escape(name),
            escape(about),
            escape(&remarks)
        );
    }
    if let Some(comparison) = comparison(sales) {
        let _ = writeln!(page, "<li>{}</li>", escape(&comparison));
    }
    page.push_str("</ul>\n</body>\n</html>\n");
    page
}

fn table(page: &mut String, sales: &[Sale]) {
    page.push_str("<table>\n<tr>");
    for head in HEADS {
        let _ = write!(page, "<th>{}</th>", escape(head));
    }
    page.push_str("</tr>\n");
    for sale in sales {
        let wrong = sale.oversold() > 0 || sale.lost_updates() != 0 || sale.balance.lost > 0;
        page.push_str(if wrong {
            "<tr class=\"wrong\">"
        } else {
            "<tr>"
        });
        for cell in row(sale) {
            let _ = write!(page, "<td>{}</td>", escape(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// The report is there as a whole or not at all: it is written under another name, and then gets its own.
pub(crate) fn write(path: &Path, page: &str) -> Outcome {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    let written = std::fs::File::create_new(&part)
        .and_then(|mut file| {
            file.write_all(page.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        format!(
            "the report cannot be written to {}: {error}",
            path.display()
        )
        .into()
    })
}
