//! Drawing by lot.

use fastrand::Rng;

pub(super) fn percent(rng: &mut Rng, likely: u8) -> bool {
    rng.u8(..100) < likely
}

pub(super) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}
