//! The table, and what else there is to say about the sales.

use std::fmt::Write;
use std::time::Duration;

use lock_examples::Table;

use crate::measure::{Sale, Trouble};
use crate::options::Options;
use crate::strategies::{SEGMENTS, Strategy};

pub(crate) const HEADS: [&str; 8] = [
    "strategy",
    "sold",
    "oversold",
    "orders lost",
    "sold per second",
    "p50",
    "p99",
    "commands per purchase",
];

pub(crate) fn row(sale: &Sale) -> [String; 8] {
    [
        sale.strategy.name().to_owned(),
        sale.balance.sold.to_string(),
        sale.oversold().to_string(),
        sale.balance.lost.to_string(),
        format!("{:.0}", sale.throughput()),
        milliseconds(sale.wait_at(0.5)),
        milliseconds(sale.wait_at(0.99)),
        match sale.strategy {
            // Nobody counts them on six servers.
            Strategy::Cluster => "-".to_owned(),
            _ => format!("{:.1}", sale.commands_per_purchase()),
        },
    ]
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// What was sold, in one line.
pub(crate) fn headline(options: &Options) -> String {
    format!(
        "{} pieces, {} users in {} processes, {} ms of work for a purchase (one in 50 takes ten times as long), seed {}{}",
        options.stock,
        options.buyers,
        options.processes,
        options.work.as_millis(),
        options.seed,
        if options.chaos { ", chaos" } else { "" }
    )
}

/// Sentences about one sale.
pub(crate) fn remarks(sale: &Sale, chaos: bool) -> Vec<String> {
    let (balance, trouble) = (&sale.balance, &sale.trouble);
    let mut remarks = vec![format!(
        "{} sold, {} stored, {} lost, {} twice",
        balance.sold, balance.stored, balance.lost, balance.twice,
    )];
    if sale.strategy == Strategy::Cluster {
        remarks.push(failover(trouble));
    } else {
        remarks.push(format!(
            "{} workers killed, {} orders claimed by others, {} of them stored before",
            trouble.workers_killed, trouble.claimed, trouble.again
        ));
        remarks.push(format!("{} requests refused by the limiter", sale.refused));
    }
    if sale.lost_updates() != 0 {
        remarks.push(format!(
            "{} taken from stock: {} updates lost",
            balance.taken,
            sale.lost_updates()
        ));
    }
    if let Some(held) = sale.held() {
        let parts = sale.strategy.parts();
        remarks.push(if parts == 1 {
            format!("the lock was held for {:.0} % of the sale", held * 100.0)
        } else {
            format!("{held:.1} of the {parts} locks were held on average")
        });
    }
    if chaos {
        remarks.push(format!(
            "{} holder processes killed and {} paused; {} writes tried by holders from the past, {} of these refused",
            trouble.holders_killed, trouble.holders_paused, trouble.stale_tried, trouble.stale_refused
        ));
    }
    remarks
}

fn failover(trouble: &Trouble) -> String {
    let Some(failover) = trouble.failover else {
        return "no master killed, for half of the stock was not sold".to_owned();
    };
    format!(
        "1 master killed after {} sold, with {} of the {SEGMENTS} segments; its replica took over after {} ms; {} purchases asked for again",
        failover.sold,
        failover.segments,
        failover.took.as_millis(),
        trouble.asked_again
    )
}

/// What the segments are good for, where both were tried.
pub(crate) fn comparison(sales: &[Sale]) -> Option<String> {
    let of = |strategy| sales.iter().find(|sale| sale.strategy == strategy);
    let (whole, parts) = (of(Strategy::Lock)?, of(Strategy::Segmented)?);
    let times = parts.throughput() / whole.throughput();
    Some(format!(
        "The segmented lock sold {times:.1} times as fast as the lock."
    ))
}

/// All of it, for the terminal.
pub(crate) fn text(options: &Options, sales: &[Sale]) -> String {
    let mut table = Table::new(HEADS);
    for sale in sales {
        table.row(row(sale));
    }
    let mut text = format!("\n{}:\n\n{table}\n", headline(options));
    for sale in sales {
        let remarks = remarks(sale, options.chaos).join("; ");
        let _ = writeln!(text, "{}: {remarks}.", sale.strategy.name());
    }
    if let Some(comparison) = comparison(sales) {
        let _ = writeln!(text, "{comparison}");
    }
    text.push('\n');
    text
}
