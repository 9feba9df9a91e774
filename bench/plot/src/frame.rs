//! A drawing with two axes.

use crate::drawing::{Anchor, Drawing, Paint};

const WIDTH: f64 = 960.0;
/// Room for the longest name of a row.
const LEFT: f64 = 160.0;
/// Room for half of the last label of the x axis, and for the figure beside the longest bar.
const RIGHT: f64 = 60.0;
/// Room for half of the highest label of the y axis.
const TOP: f64 = 12.0;
/// Room for the labels and the title of the x axis.
const BOTTOM: f64 = 44.0;
/// A line of the legend, and of the title of the y axis.
const LINE: f64 = 18.0;
/// The width of a character, roughly: for the places of the legend's entries.
const CHARACTER: f64 = 7.0;

/// From the values of an axis to 0..1.
#[derive(Debug, Clone, Copy)]
pub enum Scale {
    /// From the first value to the second.
    Linear(f64, f64),
    /// As `Linear`, in powers of ten. Both ends are more than zero.
    Log(f64, f64),
}

impl Scale {
    /// A logarithmic scale of whole powers of ten around these values; those that are not more than zero do not count.
    #[must_use]
    pub fn powers_around(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for value in values.filter(|value| *value > 0.0) {
            least = least.min(value);
            most = most.max(value);
        }
        if least > most {
            return Self::Log(1.0, 10.0);
        }
        let low = least.log10().floor();
        let high = most.log10().ceil().max(low + 1.0);
        Self::Log(10f64.powf(low), 10f64.powf(high))
    }

    fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear(low, high) => (value - low) / (high - low),
            Self::Log(low, high) => (value.max(low) / low).log10() / (high / low).log10(),
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values, at most eight of a linear scale.
    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(low, high) => {
                let rough = (high - low) / 8.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|factor| factor * power)
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                let first = (low / step - 1e-9).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
            Self::Log(low, high) => std::iter::successors(Some(low), |tick| Some(tick * 10.0))
                .take_while(|tick| *tick <= high * 1.01)
                .collect(),
        }
    }
}

/// A plot that grows.
#[derive(Debug)]
pub struct Frame {
    drawing: Drawing,
    height: f64,
    top: f64,
    x: Scale,
    y: Scale,
}

impl Frame {
    /// A plot of this height with these axes. Above it is a legend: names with their colours.
    #[must_use]
    pub fn new(height: f64, x: Scale, y: Scale, legend: &[(&str, &str)]) -> Self {
        let mut drawing = Drawing::default();
        let (mut left, mut line) = (LEFT, TOP + 6.0);
        for (name, colour) in legend {
            let width = 34.0 + name.chars().count() as f64 * CHARACTER;
            if left > LEFT && left + width > WIDTH {
                (left, line) = (LEFT, line + LINE);
            }
            drawing.rect([left, line - 6.0, 14.0, 4.0], Paint::Colour(colour), "");
            drawing.text([left + 20.0, line], name, "plain", Anchor::Start);
            left += width;
        }
        let top = if legend.is_empty() { TOP } else { line + LINE };
        Self {
            drawing,
            height: height + top - TOP,
            top,
            x,
            y,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value)) * (self.height - self.top - BOTTOM)
    }

    /// Ticks with labels, and a title below the plot.
    pub fn x_axis(&mut self, title: &str, label: impl Fn(f64) -> String) {
        let (top, bottom) = (self.top, self.height - BOTTOM);
        for tick in self.x.ticks() {
            let x = self.x(tick);
            let grid = Paint::Class("grid");
            self.drawing.line([x, top, x, bottom], grid, 1.0);
            let label = label(tick);
            let place = [x, bottom + 16.0];
            self.drawing.text(place, &label, "plain", Anchor::Middle);
        }
        let place = [(LEFT + WIDTH - RIGHT) / 2.0, self.height - 8.0];
        self.drawing.text(place, title, "plain", Anchor::Middle);
    }

    /// Ticks with labels, and a title at the left of the plot.
    pub fn y_axis(&mut self, title: &str, label: impl Fn(f64) -> String) {
        for tick in self.y.ticks() {
            let y = self.y(tick);
            let grid = Paint::Class("grid");
            self.drawing.line([LEFT, y, WIDTH - RIGHT, y], grid, 1.0);
            let place = [LEFT - 8.0, y + 4.0];
            self.drawing.text(place, &label(tick), "plain", Anchor::End);
        }
        let middle = f64::midpoint(self.top, self.height - BOTTOM);
        self.drawing
            .text([8.0, middle], title, "plain", Anchor::Start);
    }

    /// Words beside a point of the plot.
    pub fn words(&mut self, x: f64, y: f64, words: &str) {
        let place = [self.x(x) + 6.0, self.y(y) + 4.0];
        self.drawing.text(place, words, "plain", Anchor::Start);
    }

    /// A name at the left of the plot.
    pub fn row(&mut self, y: f64, name: &str) {
        let place = [LEFT - 8.0, self.y(y) + 4.0];
        self.drawing.text(place, name, "plain", Anchor::End);
    }

    /// A box between two corners, large enough to be seen.
    pub fn bar(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, title: &str) {
        let (x, y) = (self.x(from.0), self.y(to.1));
        let width = (self.x(to.0) - x).max(0.6);
        let height = (self.y(from.1) - y).max(1.0);
        let place = [x, y, width, height];
        self.drawing.rect(place, Paint::Colour(colour), title);
    }

    /// A line through these points.
    pub fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str, title: &str) {
        let points: Vec<_> = points.map(|(x, y)| (self.x(x), self.y(y))).collect();
        self.drawing
            .polyline(points.into_iter(), Paint::Colour(colour), title);
    }

    /// The plot as an element of a page, which styles text and `.grid`.
    #[must_use]
    pub fn element(self, title: &str) -> String {
        self.drawing.element([WIDTH, self.height], title)
    }

    /// The plot as a file.
    #[must_use]
    pub fn file(self, title: &str) -> String {
        self.drawing.file([WIDTH, self.height], title)
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, RIGHT, Scale, WIDTH};

    /// The x coordinates of all texts.
    fn texts(svg: &str) -> Vec<f64> {
        let texts = svg.lines().filter(|line| line.starts_with("<text"));
        let x = |line: &str| line.split(" x=\"").nth(1)?.split('"').next()?.parse().ok();
        texts.filter_map(x).collect()
    }

    #[test]
    fn ticks_are_round_and_inside_of_the_scale() {
        let ticks = Scale::Linear(-0.5, 5.5).ticks();
        assert_eq!(ticks, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(Scale::Linear(0.0, 100.0).ticks().len(), 6);
        assert_eq!(Scale::Log(1.0, 100.0).ticks(), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn the_last_label_and_a_long_legend_stay_inside() {
        let legend = ["one of many strategies"; 12].map(|name| (name, "red"));
        let scale = Scale::Linear(0.0, 100.0);
        let mut frame = Frame::new(200.0, scale, scale, &legend);
        frame.x_axis("time", |_| "100,000 ms".into());
        let svg = frame.element("title");
        let right = texts(&svg).into_iter().fold(0.0, f64::max);
        // The last entry of a line has room for its name, and the last label for half of its own.
        assert!(right <= WIDTH - RIGHT, "{right}");
    }
}
