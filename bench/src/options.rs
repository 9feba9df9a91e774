//! The command line.

use crate::rounds::Plan;

pub(crate) const USAGE: &str =
    "the arguments are names of scenarios, `--rounds <n>`, `--blocks <n>` and `--calls <n>`";

/// What to measure.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) plan: Plan,
    /// Empty: every scenario.
    names: Vec<String>,
}

impl Options {
    /// Reads the command line; the error is a sentence for its author.
    pub(crate) fn parse(
        args: impl IntoIterator<Item = String>,
        known: &[&str],
    ) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let plan = &mut options.plan;
            let number = match arg.as_str() {
                "--rounds" => &mut plan.rounds,
                "--blocks" => &mut plan.blocks,
                "--calls" => &mut plan.calls,
                name if known.contains(&name) => {
                    options.names.push(arg);
                    continue;
                }
                _ => {
                    let known = known.join(", ");
                    return Err(format!(
                        "`{arg}` is not known; {USAGE}; the scenarios are {known}"
                    ));
                }
            };
            *number = args
                .next()
                .and_then(|value| value.parse().ok())
                .filter(|&value| value > 0)
                .ok_or_else(|| format!("`{arg}` needs a number from 1 on; {USAGE}"))?;
        }
        Ok(options)
    }

    /// Whether the scenario of this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;
    use crate::rounds::Plan;

    fn parsed(line: &str) -> Result<Options, String> {
        let args = line.split_whitespace().map(str::to_owned);
        Options::parse(args, &["attribute", "uncontended"])
    }

    #[test]
    fn without_arguments_everything_is_measured() {
        let options = parsed("").unwrap();
        assert_eq!(options.plan, Plan::default());
        assert!(options.wants("attribute") && options.wants("uncontended"));
    }

    #[test]
    fn a_name_leaves_the_others_out() {
        let options = parsed("--rounds 7 attribute --calls 10").unwrap();
        assert_eq!((options.plan.rounds, options.plan.calls), (7, 10));
        assert!(options.wants("attribute") && !options.wants("uncontended"));
    }

    #[test]
    fn what_is_not_known_is_told_the_known() {
        for line in ["atribute", "--help", "--rounds", "--rounds 0", "--calls x"] {
            assert!(parsed(line).unwrap_err().contains("`--blocks <n>`"));
        }
        assert!(parsed("x").unwrap_err().contains("attribute, uncontended"));
    }
}
