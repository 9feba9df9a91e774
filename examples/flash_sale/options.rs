//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::strategies::Strategy;

pub(crate) const HELP: &str = "\
Sells the same stock in several ways, and measures them side by side.

  --strategy NAME   one of the strategies below, or all (default)
  --stock N         pieces to sell, 1 to 100000 (default 1000)
  --buyers N        users who want one, 1 to 100000 (default 5000)
  --processes N     processes that serve them, 1 to 32 (default 4)
  --work-ms N       how long a purchase works before it writes, 0 to 1000 (default 5)
  --seed N          which users are greedy and which purchases are slow (default 1)
  --out FILE        where the report goes (default flash_sale.html)
  --chaos           kill one process and pause another while they sell
  --cluster         instead of the strategies below, sell in segments over the masters of a Redis Cluster of its own, and
                    kill a master when half is sold; without REDIS_URL, limiter, workers and database

strategies:";

/// What is asked for, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) strategies: Vec<Strategy>,
    pub(crate) stock: u64,
    pub(crate) buyers: u64,
    pub(crate) processes: usize,
    pub(crate) work: Duration,
    pub(crate) seed: u64,
    pub(crate) out: PathBuf,
    pub(crate) chaos: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strategies: Strategy::ALL.to_vec(),
            stock: 1000,
            buyers: 5000,
            processes: 4,
            work: Duration::from_millis(5),
            seed: 1,
            out: PathBuf::from("flash_sale.html"),
            chaos: false,
        }
    }
}

impl Options {
    /// The error is a sentence for whoever wrote the command line.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(name) = args.next() {
            if name == "--chaos" {
                options.chaos = true;
                continue;
            }
            if name == "--cluster" {
                options.strategies = vec![Strategy::Cluster];
                continue;
            }
            let mut value = || match args.next() {
                Some(value) => Ok(value.as_str()),
                None => Err(format!("{name} wants a value: see --help")),
            };
            match name.as_str() {
                "--strategy" => options.strategies = strategies(value()?)?,
                "--stock" => options.stock = number(name, value()?, 1, 100_000)?,
                "--buyers" => options.buyers = number(name, value()?, 1, 100_000)?,
                "--processes" => options.processes = number(name, value()?, 1, 32)? as usize,
                "--work-ms" => {
                    options.work = Duration::from_millis(number(name, value()?, 0, 1000)?);
                }
                "--seed" => options.seed = number(name, value()?, 0, u64::MAX)?,
                "--out" => options.out = out(value()?)?,
                unknown => return Err(format!("there is no option `{unknown}`: see --help")),
            }
        }
        if options.chaos && options.strategies == [Strategy::Cluster] {
            return Err("--cluster is without --chaos: it kills a master".to_owned());
        }
        Ok(options)
    }
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64, String> {
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ if most == u64::MAX => Err(format!("{name} `{value}` is not a whole number")),
        _ => Err(format!(
            "{name} `{value}` is not a whole number from {least} to {most}"
        )),
    }
}

fn strategies(name: &str) -> Result<Vec<Strategy>, String> {
    if name == "all" {
        return Ok(Strategy::ALL.to_vec());
    }
    Strategy::named(name)
        .map(|found| vec![found])
        .ok_or_else(|| {
            let names: Vec<_> = Strategy::ALL.iter().map(|known| known.name()).collect();
            format!(
                "there is no strategy `{name}`: choose all, {}",
                names.join(", ")
            )
        })
}

/// Found out before the sale, not after it.
fn out(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // What is there is replaced: that must not be a device.
    if value.is_empty() || (path.exists() && !path.is_file()) || !folder.is_dir() {
        return Err(format!(
            "--out `{value}` is not a file in a folder that exists"
        ));
    }
    Ok(path)
}
