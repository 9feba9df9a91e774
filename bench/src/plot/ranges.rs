use lock_plot::{Anchor, Drawing, Paint};

use super::{WIDTH, class};

const LEFT: f64 = 200.0;
const RIGHT: f64 = 150.0;
const ROW: f64 = 24.0;

/// From one figure to another, in microseconds, on a scale of powers of ten.
pub(super) struct Ranges<'a> {
    pub(super) title: &'a str,
    pub(super) source: String,
    pub(super) groups: Vec<(String, Vec<Range<'a>>)>,
}

pub(super) struct Range<'a> {
    pub(super) name: &'a str,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ours: bool,
}

impl Ranges<'_> {
    /// `None` where there is nothing to draw.
    pub(super) fn draw(&self) -> Option<String> {
        let ranges = || self.groups.iter().flat_map(|(_, ranges)| ranges);
        let least = ranges().map(|range| range.from).reduce(f64::min)?;
        let most = ranges().map(|range| range.to).reduce(f64::max)?;
        if least <= 0.0 {
            return None;
        }
        let low = least.log10().floor() as i32;
        let high = (most.log10().ceil() as i32).max(low + 1);
        let scale = (WIDTH - LEFT - RIGHT) / f64::from(high - low);
        let x = |micros: f64| LEFT + (micros.log10() - f64::from(low)) * scale;

        let mut svg = Drawing::default();
        svg.text([16.0, 26.0], self.title, "title", Anchor::Start);
        let mut y = 44.0;
        for (name, ranges) in self.groups.iter().filter(|(_, ranges)| !ranges.is_empty()) {
            svg.text([16.0, y + 14.0], name, "group", Anchor::Start);
            y += ROW;
            let bottom = y + ranges.len() as f64 * ROW;
            for power in low..=high {
                let x = x(10_f64.powi(power));
                svg.line([x, y, x, bottom], Paint::Class("line"), 1.0);
            }
            for range in ranges {
                let label = if range.ours { "bold" } else { "plain" };
                let (middle, base) = (y + ROW / 2.0, y + ROW / 2.0 + 4.0);
                svg.text([LEFT - 10.0, base], range.name, label, Anchor::End);
                let class = class(range.ours);
                svg.line([x(range.from), middle, x(range.to), middle], class, 3.0);
                svg.circle([x(range.from), middle], 4.5, class);
                svg.circle([x(range.to), middle], 4.5, class);
                let shown = format!("{} to {}", time(range.from), time(range.to));
                svg.text([x(range.to) + 10.0, base], &shown, label, Anchor::Start);
                y += ROW;
            }
            y += 10.0;
        }
        for power in low..=high {
            let micros = 10_f64.powi(power);
            svg.text([x(micros), y + 6.0], &time(micros), "small", Anchor::Middle);
        }
        svg.text([16.0, y + 28.0], &self.source, "small", Anchor::Start);
        Some(svg.file([WIDTH, y + 40.0], self.title))
    }
}

/// Microseconds in the unit that reads best.
fn time(micros: f64) -> String {
    let (value, unit) = match micros {
        micros if micros >= 1e6 => (micros / 1e6, "s"),
        micros if micros >= 1e3 => (micros / 1e3, "ms"),
        micros => (micros, "µs"),
    };
    let decimals = usize::from(value < 10.0 && value.fract() > 0.0);
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::{Range, Ranges, time};

    fn ranges(from: f64, to: f64) -> Option<String> {
        let range = Range {
            name: "one",
            from,
            to,
            ours: true,
        };
        Ranges {
            title: "title",
            source: "here".into(),
            groups: vec![("group".into(), vec![range])],
        }
        .draw()
    }

    #[test]
    fn a_tenth_is_as_far_as_the_next() {
        // Two powers of ten on 410 pixels.
        let svg = ranges(10.0, 1000.0).unwrap();
        for x in [200, 405, 610] {
            assert!(svg.contains(&format!("x1=\"{x}.0\"")), "{x}: {svg}");
        }
        assert!(svg.contains("10 µs to 1 ms"));
    }

    #[test]
    fn what_has_no_logarithm_is_not_drawn() {
        assert!(ranges(0.0, 5.0).is_none());
    }

    #[test]
    fn times_have_the_unit_that_reads_best() {
        assert_eq!(time(3.5), "3.5 µs");
        assert_eq!(time(111.4), "111 µs");
        assert_eq!(time(1_250.0), "1.2 ms");
        assert_eq!(time(2_000_000.0), "2 s");
    }
}
