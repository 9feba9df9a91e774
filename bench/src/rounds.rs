//! Two sides in short alternating blocks, and what their times tell.

use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How often every scenario has its turn.
    pub(crate) rounds: usize,
    /// Blocks of each side in a round.
    pub(crate) blocks: usize,
    /// Calls in a block.
    pub(crate) calls: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rounds: 5,
            blocks: 200,
            calls: 50,
        }
    }
}

/// The times of the calls of one side.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// The time within which this percentage of the calls ended: the nearest rank, so always a time that was measured.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

/// The times of both sides, from one round.
#[derive(Debug, Default, Clone)]
pub(crate) struct Round {
    /// The side that is looked at.
    pub(crate) subject: Times,
    /// What it is compared with.
    pub(crate) base: Times,
}

impl Round {
    fn ratio(&self) -> f64 {
        let p50 = |times: &Times| times.percentile(50).as_secs_f64();
        p50(&self.subject) / p50(&self.base)
    }
}

/// Measures one round.
///
/// The blocks are short and alternate, so that both sides meet the same weather; which of the two goes first changes
/// with every block.
pub(crate) async fn alternate<S, B, E>(
    plan: Plan,
    mut subject: impl FnMut() -> S,
    mut base: impl FnMut() -> B,
) -> Result<Round, E>
where
    S: Future<Output = Result<(), E>>,
    B: Future<Output = Result<(), E>>,
{
    let mut round = Round::default();
    let warm_up = (plan.blocks / 20).max(1);
    for _ in 0..warm_up {
        block(plan, &mut subject, &mut Times::default()).await?;
        block(plan, &mut base, &mut Times::default()).await?;
    }
    for number in 0..plan.blocks {
        if number % 2 == 0 {
            block(plan, &mut subject, &mut round.subject).await?;
            block(plan, &mut base, &mut round.base).await?;
        } else {
            block(plan, &mut base, &mut round.base).await?;
            block(plan, &mut subject, &mut round.subject).await?;
        }
    }
    Ok(round)
}

async fn block<S, E>(plan: Plan, side: &mut impl FnMut() -> S, times: &mut Times) -> Result<(), E>
where
    S: Future<Output = Result<(), E>>,
{
    times.0.reserve(plan.calls);
    for _ in 0..plan.calls {
        let start = Instant::now();
        side().await?;
        times.0.push(start.elapsed());
    }
    Ok(())
}

/// The ratio of the p50s: its median over the rounds, and how far the rounds are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Ratio {
    /// Of rounds that each have a ratio of their own.
    pub(crate) fn of(rounds: &[Round]) -> Self {
        Self::of_ratios(rounds.iter().map(Round::ratio).collect())
    }

    fn of_ratios(mut ratios: Vec<f64>) -> Self {
        ratios.sort_unstable_by(f64::total_cmp);
        let upper = ratios.len() / 2;
        let lower = ratios.len().saturating_sub(1) / 2;
        let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
        Self {
            median: f64::midpoint(at(lower), at(upper)),
            least: at(0),
            most: at(ratios.len().saturating_sub(1)),
        }
    }
}

/// The times of all rounds together.
pub(crate) fn pooled<'a>(rounds: impl IntoIterator<Item = &'a Times>) -> Times {
    Times(
        rounds
            .into_iter()
            .flat_map(|times| &times.0)
            .copied()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;
    use std::time::Duration;

    use super::{Plan, Ratio, Round, Times, alternate, pooled};

    fn times(micros: impl IntoIterator<Item = u64>) -> Times {
        Times(micros.into_iter().map(Duration::from_micros).collect())
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let hundred = times((1..=100).rev());
        for percent in [1, 50, 99, 100] {
            let expected = Duration::from_micros(percent as u64);
            assert_eq!(hundred.percentile(percent), expected);
        }
        assert_eq!(times([7]).percentile(99), Duration::from_micros(7));
        assert_eq!(times([1, 2, 9]).percentile(50), Duration::from_micros(2));
        assert_eq!(times([]).percentile(50), Duration::ZERO);
    }

    #[test]
    fn a_ratio_has_its_spread_over_the_rounds() {
        let rounds = [(30, 20), (20, 20), (10, 20)].map(|(subject, base)| Round {
            subject: times([subject, subject, 9000]),
            base: times([base]),
        });
        let expected = Ratio {
            median: 1.0,
            least: 0.5,
            most: 1.5,
        };
        assert_eq!(Ratio::of(&rounds), expected);
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let ratio = Ratio::of_ratios(vec![4.0, 1.0, 2.0, 3.0]);
        assert!((ratio.median - 2.5).abs() < 1e-9);
        assert!(Ratio::of(&[]).median.is_nan());
    }

    #[test]
    fn rounds_are_pooled() {
        let (first, second) = (times([1, 2]), times([3]));
        assert_eq!(pooled([&first, &second]), times([1, 2, 3]));
    }

    #[tokio::test]
    async fn blocks_alternate_and_swap_their_order() {
        let order = RefCell::new(String::new());
        let plan = Plan {
            rounds: 1,
            blocks: 4,
            calls: 2,
        };
        let called = |side| {
            order.borrow_mut().push(side);
            std::future::ready(Ok::<(), Infallible>(()))
        };
        let round = alternate(plan, || called('s'), || called('b'))
            .await
            .unwrap();
        assert_eq!(
            order.into_inner(),
            "ssbb ssbb bbss ssbb bbss".replace(' ', "")
        );
        assert_eq!((round.subject.0.len(), round.base.0.len()), (8, 8));
    }
}
