use lock_plot::{Anchor, Drawing, Paint};

use super::{WIDTH, class};

const LEFT: f64 = 200.0;
/// What remains beside the longest bar for its figure.
const RIGHT: f64 = 110.0;
const ROW: f64 = 24.0;
const BAR: f64 = 15.0;

/// Bars that lie, in groups with a common scale that begins at zero.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) source: String,
    pub(super) groups: Vec<(String, Vec<Bar<'a>>)>,
    /// A value to compare with.
    pub(super) mark: Option<f64>,
}

pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) value: f64,
    pub(super) shown: String,
    pub(super) ours: bool,
}

impl Bars<'_> {
    /// `None` where there is nothing to draw.
    pub(super) fn draw(&self) -> Option<String> {
        let values = self.groups.iter().flat_map(|(_, bars)| bars);
        let most = values.map(|bar| bar.value).reduce(f64::max)?;
        if most <= 0.0 {
            return None;
        }
        let scale = (WIDTH - LEFT - RIGHT) / most;
        let mut svg = Drawing::default();
        svg.text([16.0, 26.0], self.title, "title", Anchor::Start);
        let mut y = 44.0;
        for (name, bars) in self.groups.iter().filter(|(_, bars)| !bars.is_empty()) {
            svg.text([16.0, y + 14.0], name, "group", Anchor::Start);
            y += ROW;
            let top = y;
            for bar in bars {
                let label = if bar.ours { "bold" } else { "plain" };
                let base = y + ROW / 2.0 + 4.0;
                svg.text([LEFT - 10.0, base], bar.name, label, Anchor::End);
                // A bar too short to be seen is still there.
                let length = (bar.value * scale).max(1.0);
                svg.rect(
                    [LEFT, y + (ROW - BAR) / 2.0, length, BAR],
                    class(bar.ours),
                    "",
                );
                svg.text(
                    [LEFT + length + 6.0, base],
                    &bar.shown,
                    label,
                    Anchor::Start,
                );
                y += ROW;
            }
            svg.line([LEFT, top, LEFT, y], Paint::Class("line"), 1.0);
            if let Some(mark) = self.mark {
                let x = LEFT + mark * scale;
                svg.line([x, top, x, y], Paint::Class("mark"), 1.0);
            }
            y += 10.0;
        }
        svg.text([16.0, y + 12.0], &self.source, "small", Anchor::Start);
        Some(svg.file([WIDTH, y + 24.0], self.title))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars};

    fn bars(values: &[f64]) -> Option<String> {
        let bar = |&value| Bar {
            name: "one",
            value,
            shown: format!("{value}"),
            ours: false,
        };
        Bars {
            title: "title",
            source: "here".into(),
            groups: vec![("group".into(), values.iter().map(bar).collect())],
            mark: Some(1.0),
        }
        .draw()
    }

    #[test]
    fn lengths_are_in_proportion_to_values() {
        let svg = bars(&[9.0, 4.5, 0.0]).unwrap();
        assert!(svg.contains(r#"width="450.00""#), "{svg}");
        assert!(svg.contains(r#"width="225.00""#));
        assert!(svg.contains(r#"width="1.00""#));
        assert!(svg.contains(r#"<line class="mark" x1="250.0""#));
    }

    #[test]
    fn nothing_to_draw_is_no_plot() {
        assert!(bars(&[]).is_none());
        assert!(bars(&[0.0]).is_none());
    }
}
