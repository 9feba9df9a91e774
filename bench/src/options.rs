//! The command line.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench [-- OPTIONS]
  --only a,c     only these scenarios
  --rounds N     how often each has its turn (5)
  --sentinel     our locks find the server through a sentinel
  --quick        short turns, and one round: shows that it works, not how fast
  --json PATH    where the figures go (docs/bench/results.json; the plots beside it)
  --plots PATH   measures nothing, and draws the plots of these figures anew
LOCK_BENCH_METRICS=1 makes metrics of our locks, LOCK_BENCH_OWN_THREAD=1 gives each manager a thread.";

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
    pub(crate) sentinel: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) plots: Option<PathBuf>,
    /// Empty: every scenario.
    only: Vec<String>,
}

impl Options {
    /// Reads the command line; the error is a sentence for its author.
    pub(crate) fn parse(
        args: impl IntoIterator<Item = String>,
        known: &[&str],
    ) -> Result<Self, String> {
        let mut options = Self {
            rounds: 0,
            quick: false,
            sentinel: false,
            json: None,
            plots: None,
            only: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--sentinel" => options.sentinel = true,
                _ => {}
            }
            if ["--quick", "--sentinel"].contains(&arg.as_str()) {
                continue;
            }
            if !["--only", "--rounds", "--json", "--plots"].contains(&arg.as_str()) {
                return Err(format!("`{arg}` is not known\n{USAGE}"));
            }
            let value = args
                .next()
                .filter(|value| !value.is_empty())
                .ok_or_else(|| format!("`{arg}` needs a value\n{USAGE}"))?;
            match arg.as_str() {
                "--only" => {
                    for name in value.split(',') {
                        if !known.contains(&name) {
                            let known = known.join(", ");
                            return Err(format!(
                                "there is no scenario `{name}`; there are {known}"
                            ));
                        }
                        options.only.push(name.to_owned());
                    }
                }
                "--rounds" => {
                    options.rounds = value
                        .parse()
                        .ok()
                        .filter(|&rounds| rounds > 0)
                        .ok_or_else(|| format!("`{value}` is no number of rounds\n{USAGE}"))?;
                }
                "--json" => options.json = Some(value.into()),
                _ => options.plots = Some(value.into()),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 1 } else { 5 };
        }
        Ok(options)
    }

    /// Whether the scenario of this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    /// Whether everything is asked for, at full length.
    pub(crate) fn is_full(&self) -> bool {
        !self.quick && !self.sentinel && self.only.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parsed(line: &str) -> Result<Options, String> {
        let args = line.split_whitespace().map(str::to_owned);
        Options::parse(args, &["a", "b", "c"])
    }

    #[test]
    fn without_arguments_everything_is_measured_five_times() {
        let options = parsed("").unwrap();
        assert_eq!(options.rounds, 5);
        assert!(options.is_full() && options.wants("a") && options.wants("c"));
    }

    #[test]
    fn a_quick_run_has_one_round_unless_told_otherwise() {
        assert_eq!(parsed("--quick").unwrap().rounds, 1);
        assert_eq!(parsed("--rounds 3 --quick").unwrap().rounds, 3);
        assert!(!parsed("--quick").unwrap().is_full());
    }

    #[test]
    fn names_leave_the_others_out() {
        let options = parsed("--only a,c --json out.json").unwrap();
        assert!(options.wants("a") && options.wants("c") && !options.wants("b"));
        assert_eq!(options.json, Some("out.json".into()));
        assert!(!options.is_full());
    }

    #[test]
    fn what_is_not_known_is_told_the_known() {
        for line in ["--onl a", "x", "--rounds", "--rounds 0", "--rounds x"] {
            assert!(parsed(line).unwrap_err().contains("--rounds N"), "{line}");
        }
        assert!(parsed("--only a,z").unwrap_err().contains("a, b, c"));
    }
}
