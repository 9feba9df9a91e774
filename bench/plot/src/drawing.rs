//! Shapes and text.

use std::fmt::Write;

/// The classes of text and shapes. Middle tones can be read on a light and on a dark page; the reader's page says which one it is.
const STYLE: &str = "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#57606a}\
.title{font-size:15px;font-weight:600;fill:#24292f}.group{font-weight:600;fill:#24292f}\
.bold{font-weight:600;fill:#24292f}.small{font-size:10.5px}.ours{fill:#2f81f7;stroke:#2f81f7}\
.other{fill:#9aa4af;stroke:#9aa4af}.line{stroke:#d0d7de}.grid{stroke:#8884}\
.mark{stroke:#8b949e;stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){text{fill:#8b949e}.title,.group,.bold{fill:#e6edf3}\
.other{fill:#6e7681;stroke:#6e7681}.line{stroke:#30363d}}";

/// The position of a text relative to its coordinates.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// The text is centred there.
    Middle,
    /// The text ends there.
    End,
}

/// The look of a line or a shape.
#[derive(Debug, Clone, Copy)]
pub enum Paint<'a> {
    /// A class of the style: `ours`, `other`, `line`, `grid` or `mark`.
    Class(&'a str),
    /// A colour of CSS.
    Colour(&'a str),
}

impl Paint<'_> {
    fn filled(self) -> String {
        match self {
            Self::Class(class) => format!("class=\"{}\" stroke=\"none\"", escape(class)),
            Self::Colour(colour) => format!("fill=\"{}\"", escape(colour)),
        }
    }

    fn stroked(self) -> String {
        match self {
            Self::Class(class) => format!("class=\"{}\"", escape(class)),
            Self::Colour(colour) => format!("stroke=\"{}\"", escape(colour)),
        }
    }
}

/// A drawing that grows.
#[derive(Debug, Default)]
pub struct Drawing {
    body: String,
}

impl Drawing {
    /// A box: its left, top, width and height. The title is shown when the pointer is over it.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], paint: Paint<'_>, title: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect {} x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}">{}</rect>"#,
            paint.filled(),
            tooltip(title)
        );
    }

    /// A straight line.
    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], paint: Paint<'_>, width: f64) {
        let _ = writeln!(
            self.body,
            r#"<line {} x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke-width="{width}"/>"#,
            paint.stroked()
        );
    }

    /// A line through these points.
    pub fn polyline(
        &mut self,
        points: impl Iterator<Item = (f64, f64)>,
        paint: Paint<'_>,
        title: &str,
    ) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            self.body,
            r#"<polyline {} points="{}" fill="none" stroke-width="2">{}</polyline>"#,
            paint.stroked(),
            path.trim_end(),
            tooltip(title)
        );
    }

    /// A filled circle.
    pub fn circle(&mut self, [x, y]: [f64; 2], radius: f64, paint: Paint<'_>) {
        let _ = writeln!(
            self.body,
            r#"<circle {} cx="{x:.1}" cy="{y:.1}" r="{radius}"/>"#,
            paint.filled()
        );
    }

    /// A line of text, in one of the classes `title`, `group`, `bold`, `plain` and `small`.
    pub fn text(&mut self, [x, y]: [f64; 2], text: &str, class: &str, anchor: Anchor) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// The drawing as a file.
    #[must_use]
    pub fn file(self, [width, height]: [f64; 2], title: &str) -> String {
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n{}</svg>\n",
            self.body
        )
    }

    /// The drawing as an element of a page, whose style gives text and `.grid` their looks.
    #[must_use]
    pub fn element(self, [width, height]: [f64; 2], title: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            escape(title),
            self.body
        )
    }
}

fn tooltip(title: &str) -> String {
    if title.is_empty() {
        return String::new();
    }
    format!("<title>{}</title>", escape(title))
}

/// Any text, for use in a page or a drawing.
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

#[cfg(test)]
mod tests {
    use super::{Anchor, Drawing, Paint};

    #[test]
    fn text_is_text_and_no_markup() {
        let mut drawing = Drawing::default();
        drawing.text([1.0, 2.0], "a < b & c", "bold", Anchor::End);
        drawing.rect([0.0; 4], Paint::Colour("\"x"), "<t>");
        let svg = drawing.file([60.0, 50.0], "<x>");
        assert!(svg.contains(
            r#"<text class="bold" x="1.0" y="2.0" text-anchor="end">a &lt; b &amp; c</text>"#
        ));
        assert!(svg.contains("<title>&lt;x&gt;</title>"));
        assert!(svg.contains(r#"fill="&quot;x""#) && svg.contains("<title>&lt;t&gt;</title>"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_file_has_a_style_and_an_element_has_the_one_of_its_page() {
        let style = |svg: String| svg.contains("prefers-color-scheme:dark");
        assert!(style(Drawing::default().file([1.0; 2], "t")));
        assert!(!style(Drawing::default().element([1.0; 2], "t")));
    }
}
