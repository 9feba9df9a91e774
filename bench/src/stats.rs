//! Percentiles, medians and spreads.

/// Measured numbers in order of size.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sorted(Vec<u64>);

impl Sorted {
    pub(crate) fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = numbers.into_iter().collect();
        sorted.sort_unstable();
        Self(sorted)
    }

    /// The number that this percentage of all do not exceed: the nearest rank, so always one that was measured.
    pub(crate) fn percentile(&self, percent: usize) -> Option<u64> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied()
    }

    pub(crate) fn least(&self) -> Option<u64> {
        self.0.first().copied()
    }

    pub(crate) fn most(&self) -> Option<u64> {
        self.0.last().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What the rounds of a run say about one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// `None` where no round has a figure.
    pub(crate) fn of(rounds: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let mut figures: Vec<f64> = rounds.into_iter().flatten().collect();
        figures.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let upper = figures.len() / 2;
        let lower = (figures.len() - 1) / 2;
        Some(Self {
            median: f64::midpoint(figures[lower], figures[upper]),
            least,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Sorted, Spread};

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let hundred = Sorted::of((1..=100).rev());
        for percent in [1, 50, 99, 100] {
            assert_eq!(hundred.percentile(percent), Some(percent as u64));
        }
        assert_eq!(Sorted::of([7]).percentile(99), Some(7));
        assert_eq!(Sorted::of([9, 1, 2]).percentile(50), Some(2));
        assert_eq!(Sorted::of([9, 1, 2]).least(), Some(1));
        assert_eq!(Sorted::of([9, 1, 2]).most(), Some(9));
        assert_eq!(Sorted::of([]).percentile(50), None);
    }

    #[test]
    fn a_spread_is_the_median_between_the_least_and_the_most() {
        let spread = Spread::of([Some(3.0), Some(1.0), Some(2.0)]).unwrap();
        assert_eq!(
            spread,
            Spread {
                median: 2.0,
                least: 1.0,
                most: 3.0
            }
        );
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0].map(Some)).unwrap();
        assert!((spread.median - 2.5).abs() < 1e-9);
    }

    #[test]
    fn rounds_without_a_figure_are_left_out() {
        assert_eq!(Spread::of([None, None]), None);
        assert!((Spread::of([None, Some(5.0)]).unwrap().median - 5.0).abs() < 1e-9);
    }
}
