//! Drawing by lot.

use fastrand::Rng;

pub(crate) fn percent(rng: &mut Rng, likely: u8) -> bool {
    rng.u8(..100) < likely
}

pub(crate) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}
