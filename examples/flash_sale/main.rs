//! A flash sale: many buyers, few pieces, and every way to sell them side by side on a real Redis.
//!
//! ```text
//! cargo run --release -p larger-examples --bin flash_sale -- --strategy all --stock 1000 --buyers 5000 --processes 4
//! ```
//!
//! Without `REDIS_URL` it starts a `redis-server` of its own (`REDIS_SERVER_BIN`, else from `PATH`). It prints a table
//! and writes a page with plots, `flash_sale.html`. `--help` tells the rest.
//!
//! A request passes the limiter (`limiter.rs`), then one of the `strategies/` sells it a piece and writes an order into a
//! Redis Stream. Workers (`workers.rs`) store the orders in `SQLite`; two of them are killed with orders in their hands.
//! At the end what was sold, what is stored and what is left must add up (`books.rs`).
//!
//! The first process (`sale.rs`) starts this program again for each process of buyers (`buyers.rs`) and each worker, and
//! hears from them line by line (`line.rs`). With `--cluster` it sells in a cluster of its own instead (`cluster.rs`).

mod books;
mod buyers;
mod cluster;
mod crew;
mod limiter;
mod line;
mod measure;
mod options;
mod page;
mod plots;
mod sale;
mod shop;
mod strategies;
mod summary;
mod workers;

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use lock_examples::{Outcome, exit, redis_url_or_own_server};

use line::{Line, Mouth};
use options::{HELP, Options};
use strategies::Strategy;

/// For what was wrong on the command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((role, rest)) if role == "buyers" => {
            member(buyers::Task::parse(rest), |task, mouth| {
                runtime()?.block_on(buyers::run(&task, mouth))
            })
        }
        Some((role, rest)) if role == "worker" => {
            member(workers::Task::parse(rest), |task, mouth| {
                workers::run(&task, mouth)
            })
        }
        Some((flag, _)) if flag == "--help" || flag == "-h" => {
            println!("{HELP}");
            for strategy in Strategy::ALL {
                println!("  {:20} {}", strategy.name(), strategy.about());
            }
            ExitCode::SUCCESS
        }
        _ => match Options::parse(&args) {
            Ok(options) => exit("flash_sale", first(&options)),
            Err(sentence) => {
                eprintln!("flash_sale: {sentence}");
                ExitCode::from(USAGE)
            }
        },
    }
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.enable_all().build()?)
}

fn first(options: &Options) -> Outcome {
    runtime()?.block_on(conduct(options))
}

/// A process of the sale: what goes wrong is told to the first one.
fn member<T>(task: Option<T>, run: impl FnOnce(T, &Mouth) -> Outcome) -> ExitCode {
    let (mouth, speaker) = Mouth::open();
    let outcome = match task {
        Some(task) => run(task, &mouth),
        None => Err("this is for the program itself".into()),
    };
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            mouth.say(Line::Fails(error.to_string()));
            ExitCode::FAILURE
        }
    };
    drop(mouth);
    let _ = speaker.join();
    code
}

/// The first process: one sale after the other, then the report.
async fn conduct(options: &Options) -> Outcome {
    let style = ProgressStyle::with_template("  {msg:20} {wide_bar} {pos}/{len} requests")?;
    let mut sales = Vec::new();
    let cluster = options.strategies == [Strategy::Cluster];
    let own = (!cluster).then(|| redis_url_or_own_server("stock is"));
    let server = own.transpose()?;
    for strategy in &options.strategies {
        let bar = ProgressBar::no_length().with_style(style.clone());
        bar.set_message(strategy.name());
        let sale = match &server {
            Some((url, _)) => sale::hold(options, url, *strategy, &bar).await,
            None => cluster::hold(options, &bar).await,
        };
        bar.finish_and_clear();
        sales.push(sale.map_err(|error| format!("`{}` was broken off: {error}", strategy.name()))?);
    }

    print!("{}", summary::text(options, &sales));
    page::write(&options.out, &page::page(options, &sales))?;
    println!("The report is in {}.", options.out.display());
    let promises = |strategy: Strategy| {
        strategy.is_correct() && (!options.chaos || strategy.is_safe_from_the_past())
    };
    for sale in sales.iter().filter(|sale| promises(sale.strategy)) {
        sale.verdict(options.buyers)?;
    }
    Ok(())
}
