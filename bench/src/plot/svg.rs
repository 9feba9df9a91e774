//! Just enough SVG for a plot that can be read on a light and on a dark page.

use std::fmt::Write;

pub(super) const WIDTH: f64 = 760.0;

/// Middle tones, which can be read on both; the page of the reader says which it is.
const STYLE: &str = "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#57606a}\
.title{font-size:15px;font-weight:600;fill:#24292f}.group{font-weight:600;fill:#24292f}\
.bold{font-weight:600;fill:#24292f}.small{font-size:10.5px}.ours{fill:#2f81f7;stroke:#2f81f7}\
.other{fill:#9aa4af;stroke:#9aa4af}.line{stroke:#d0d7de;stroke-width:1}\
.mark{stroke:#8b949e;stroke-width:1;stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){text{fill:#8b949e}.title,.group,.bold{fill:#e6edf3}\
.other{fill:#6e7681;stroke:#6e7681}.line{stroke:#30363d}}";

/// How a line or a shape looks.
pub(super) fn class(ours: bool) -> &'static str {
    if ours { "ours" } else { "other" }
}

#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing that grows.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    pub(super) fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" stroke="none" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        );
    }

    pub(super) fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], class: &str, width: f64) {
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke-width="{width}"/>"#
        );
    }

    pub(super) fn circle(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        let _ = writeln!(
            self.body,
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"/>"#
        );
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], text: &str, class: &str, anchor: Anchor) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// The file.
    pub(super) fn finish(self, height: f64, title: &str) -> String {
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n{}</svg>\n",
            self.body
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Anchor, Svg, class};

    #[test]
    fn text_is_text_and_no_markup() {
        let mut svg = Svg::default();
        svg.text([1.0, 2.0], "a < b & c", class(true), Anchor::End);
        let svg = svg.finish(50.0, "<x>");
        assert!(svg.contains(
            r#"<text class="ours" x="1.0" y="2.0" text-anchor="end">a &lt; b &amp; c</text>"#
        ));
        assert!(svg.contains("<title>&lt;x&gt;</title>"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn every_tag_is_closed() {
        let mut svg = Svg::default();
        svg.rect([0.0; 4], "other");
        svg.line([0.0; 4], "line", 1.0);
        svg.circle([0.0; 2], 3.0, "ours");
        let svg = svg.finish(10.0, "t");
        assert_eq!(svg.matches("/>").count(), 3);
        assert!(svg.contains("prefers-color-scheme:dark"));
    }
}
