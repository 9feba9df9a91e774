//! The part of SVG that the plots need: a frame with axes, and marks in it.

use std::fmt::Write;

const WIDTH: f64 = 960.0;
/// Room for the labels of the axes.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

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

    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(low, high) => (0..=5)
                .map(|tick| low + (high - low) * f64::from(tick) / 5.0)
                .collect(),
            Self::Log(low, high) => std::iter::successors(Some(low), |tick| Some(tick * 10.0))
                .take_while(|tick| *tick <= high * 1.01)
                .collect(),
        }
    }
}

/// A picture in the making.
#[derive(Debug)]
pub struct Svg {
    marks: String,
    height: f64,
    x: Scale,
    y: Scale,
}

impl Svg {
    /// An empty plot of this height, with these axes.
    #[must_use]
    pub fn new(height: f64, x: Scale, y: Scale) -> Self {
        Self {
            marks: String::new(),
            height,
            x,
            y,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.y.place(value)) * (self.height - TOP - BOTTOM)
    }

    /// Ticks with labels and a title below the plot.
    pub fn x_axis(&mut self, title: &str, label: impl Fn(f64) -> String) {
        let (top, bottom) = (TOP, self.height - BOTTOM);
        for tick in self.x.ticks() {
            let x = self.x(tick);
            let _ = writeln!(
                self.marks,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>"
            );
            self.text(x, bottom + 16.0, "middle", &label(tick));
        }
        self.text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            self.height - 8.0,
            "middle",
            title,
        );
    }

    /// Ticks with labels at the left of the plot.
    pub fn y_axis(&mut self, label: impl Fn(f64) -> String) {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        for tick in self.y.ticks() {
            let y = self.y(tick);
            let _ = writeln!(
                self.marks,
                "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            self.text(left - 8.0, y + 4.0, "end", &label(tick));
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = writeln!(
            self.marks,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    /// Words at a place of the plot.
    pub fn words(&mut self, x: f64, y: f64, words: &str) {
        let (x, y) = (self.x(x) + 6.0, self.y(y) + 4.0);
        self.text(x, y, "start", words);
    }

    /// A word at the left of the plot.
    pub fn row(&mut self, y: f64, name: &str) {
        let y = self.y(y) + 4.0;
        self.text(LEFT - 8.0, y, "end", name);
    }

    /// A box between two corners; never too small to be seen.
    pub fn bar(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, title: &str) {
        let (x, y) = (self.x(from.0), self.y(to.1));
        let (width, height) = (self.x(to.0) - x, self.y(from.1) - y);
        let _ = writeln!(
            self.marks,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"><title>{}</title></rect>",
            width.max(0.6),
            height.max(1.0),
            escape(colour),
            escape(title)
        );
    }

    /// A line through these points.
    pub fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str, title: &str) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{:.1},{:.1} ", self.x(x), self.y(y));
        }
        let _ = writeln!(
            self.marks,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"><title>{}</title></polyline>",
            path.trim_end(),
            escape(colour),
            escape(title)
        );
    }

    /// Which colour stands for what, below one another from the top left corner of the plot.
    pub fn legend<'a>(&mut self, names: impl Iterator<Item = (&'a str, &'a str)>) {
        for (number, (name, colour)) in names.enumerate() {
            let y = TOP + 14.0 + number as f64 * 17.0;
            let x = LEFT + 12.0;
            let _ = writeln!(
                self.marks,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{}\"/>",
                y - 6.0,
                escape(colour)
            );
            self.text(x + 20.0, y, "start", name);
        }
    }

    /// The picture as an element of a page, which styles text and `.grid`.
    #[must_use]
    pub fn finish(self, label: &str) -> String {
        self.element("", "", label)
    }

    /// The picture as a file of its own.
    #[must_use]
    pub fn finish_file(self, label: &str) -> String {
        self.element(
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\"",
            "<style>svg { background: white; font: 12px sans-serif; } .grid { stroke: #8884; }</style>\n",
            label,
        )
    }

    fn element(self, attributes: &str, style: &str, label: &str) -> String {
        format!(
            "<svg{attributes} viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">\n{style}{}</svg>\n",
            self.height,
            escape(label),
            self.marks
        )
    }
}

/// Text as it may stand in a page or a picture, whatever it holds.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}
