//! The SVG writer of the benchmark and the examples.
//!
//! A [`Drawing`] has shapes and text, at coordinates in pixels. A [`Frame`] is a drawing with two axes, whose marks have the values
//! of the axes as coordinates.

mod drawing;
mod frame;

pub use drawing::{Anchor, Drawing, Paint, escape};
pub use frame::{Frame, Scale};
