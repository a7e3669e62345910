//! Plots as inline SVG.
//!
//! Colours are those of the light scheme in `style.css`, which maps each of them to the scheme at
//! hand by attribute selectors. Drawn at twice the size they are shown at, because the backend
//! places everything on whole units.

use super::html::{Node, element, text};
use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};

pub(super) const INK: RGBColor = RGBColor(0x1b, 0x25, 0x30);
pub(super) const SOFT: RGBColor = RGBColor(0x55, 0x63, 0x6f);
pub(super) const LINE: RGBColor = RGBColor(0xd5, 0xdd, 0xe4);
pub(super) const GOOD: RGBColor = RGBColor(0x0f, 0x6b, 0x45);
pub(super) const BAD: RGBColor = RGBColor(0xa9, 0x20, 0x1a);
pub(super) const OPEN: RGBColor = RGBColor(0x7d, 0x52, 0x00);
/// Baseline, candidates in order.
pub(super) const ARMS: [RGBColor; 3] =
    [RGBColor(0x5b, 0x70, 0x83), RGBColor(0x0b, 0x62, 0xb8), RGBColor(0xa4, 0x50, 0x8b)];

/// The colour of the arm at this place of the plan.
pub(super) fn arm_color(index: usize) -> RGBColor {
    ARMS[index.min(ARMS.len() - 1)]
}

const FONT: i32 = 27;

/// A linear scale from values to units of the drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: i32,
    to: i32,
}

impl Scale {
    /// A scale that holds every finite value of `values` with a little room on both sides.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: i32, to: i32) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| v.is_finite()) {
            (low, high) = (low.min(v), high.max(v));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let room = if high > low { 0.06 * (high - low) } else { 0.05 * high.abs().max(1e-9) };
        Scale { low: low - room, high: high + room, from, to }
    }

    /// The same scale starting exactly at `low`.
    pub(super) fn starting_at(self, low: f64) -> Scale {
        Scale { low, ..self }
    }

    pub(super) fn at(&self, value: f64) -> i32 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(-0.02, 1.02);
        self.from + (share * f64::from(self.to - self.from)).round() as i32
    }

    /// Between three and eight round values with their labels.
    pub(super) fn ticks(&self) -> Vec<(i32, String)> {
        let span = self.high - self.low;
        let magnitude = 10f64.powf((span / 4.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|m| m * magnitude)
            .into_iter()
            .find(|s| span / s <= 6.0)
            .unwrap_or(magnitude * 10.0);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last)
            .map(|i| i as f64 * step)
            .map(|v| (self.at(v), format!("{v:.decimals$}")))
            .collect()
    }
}

/// A drawing of `width` × `height` shown units with a name for those who cannot see it.
pub(super) fn draw(
    label: &str,
    caption: &str,
    (width, height): (u32, u32),
    paint: impl FnOnce(&mut Canvas<'_>),
) -> Node {
    let (width, height) = (2 * width, 2 * height);
    let mut svg = String::new();
    let mut canvas = Canvas { backend: SVGBackend::with_string(&mut svg, (width, height)) };
    paint(&mut canvas);
    // Closing the root element cannot fail on a string.
    let _ = canvas.backend.present();
    drop(canvas);
    // The backend gives the drawing a fixed size and no name.
    let rest = svg.split_once("xmlns=").map_or("", |(_, rest)| rest);
    let name = text(label).into_string();
    let svg = format!(
        "<svg role=\"img\" aria-label=\"{name}\" viewBox=\"0 0 {width} {height}\" xmlns={rest}"
    );
    element("figure").with(Node::drawing(svg)).with(element("figcaption").with(caption)).into()
}

/// Where the point of a text lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Draws in halves of a shown unit. Drawing to a string cannot fail, so results are dropped.
pub(super) struct Canvas<'a> {
    backend: SVGBackend<'a>,
}

impl Canvas<'_> {
    /// A straight line.
    pub(super) fn line(&mut self, from: (i32, i32), to: (i32, i32), color: RGBColor, width: u32) {
        let style = color.stroke_width(width);
        let _ = self.backend.draw_line(from, to, &style);
    }

    /// A line of dashes, level or upright.
    pub(super) fn dashes(&mut self, from: (i32, i32), to: (i32, i32), color: RGBColor, width: u32) {
        let length = (to.0 - from.0).abs().max((to.1 - from.1).abs());
        let step = |t: i32| {
            let along = |a: i32, b: i32| a + (b - a) * t / length.max(1);
            (along(from.0, to.0), along(from.1, to.1))
        };
        for start in (0..length).step_by(18) {
            self.line(step(start), step((start + 11).min(length)), color, width);
        }
    }

    /// A filled dot.
    pub(super) fn dot(&mut self, at: (i32, i32), radius: u32, color: RGBColor, opacity: f64) {
        let _ = self.backend.draw_circle(at, radius, &color.mix(opacity), true);
    }

    /// An empty circle.
    pub(super) fn ring(&mut self, at: (i32, i32), radius: u32, color: RGBColor) {
        let _ = self.backend.draw_circle(at, radius, &color.stroke_width(2), false);
    }

    /// A filled rectangle between two corners.
    pub(super) fn bar(&mut self, a: (i32, i32), b: (i32, i32), color: RGBColor, opacity: f64) {
        let upper = (a.0.min(b.0), a.1.min(b.1));
        let lower = (a.0.max(b.0), a.1.max(b.1));
        let _ = self.backend.draw_rect(upper, lower, &color.mix(opacity), true);
    }

    /// Text, centred vertically on its point.
    pub(super) fn text(&mut self, content: &str, at: (i32, i32), anchor: Anchor, color: RGBColor) {
        let horizontal = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let style = TextStyle::from(("sans-serif", FONT).into_font())
            .color(&color)
            .pos(Pos::new(horizontal, VPos::Center));
        let _ = self.backend.draw_text(&visible(content), &style, at);
    }

    /// A horizontal axis below `y` with grid lines up to `top` and a name at its end.
    pub(super) fn axis_x(&mut self, scale: &Scale, top: i32, y: i32, name: &str) {
        for (x, label) in scale.ticks() {
            self.line((x, top), (x, y), LINE, 2);
            self.text(&label, (x, y + 24), Anchor::Middle, SOFT);
        }
        self.text(name, ((scale.from + scale.to) / 2, y + 62), Anchor::Middle, SOFT);
    }

    /// A vertical axis left of `x` with grid lines to `right` and a name above it.
    pub(super) fn axis_y(&mut self, scale: &Scale, x: i32, right: i32, name: &str) {
        for (y, label) in scale.ticks() {
            self.line((x, y), (right, y), LINE, 2);
            self.text(&label, (x - 12, y), Anchor::End, SOFT);
        }
        self.text(name, (4, scale.to.min(scale.from) - 34), Anchor::Start, SOFT);
    }
}

/// Control characters and directional overrides have no place in a drawing (the backend escapes
/// markup).
fn visible(content: &str) -> String {
    let hidden =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    content.chars().map(|c| if hidden(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::over([0.93, 1.31].into_iter(), 0, 1000);
        let labels: Vec<String> = scale.ticks().into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["1.0", "1.1", "1.2", "1.3"]);
        assert!(scale.ticks().iter().all(|t| (0..=1000).contains(&t.0)));
        assert!(!Scale::over([5.0].into_iter(), 0, 10).ticks().is_empty());
        assert!(!Scale::over(std::iter::empty(), 0, 10).ticks().is_empty());
    }

    #[test]
    fn names_in_drawings_are_inert() {
        let node = draw("<b>", "c", (10, 10), |c| {
            c.text("</svg><script>", (0, 0), Anchor::Start, INK);
        });
        let svg = node.into_string();
        assert!(svg.contains("aria-label=\"&lt;b&gt;\""), "{svg}");
        assert!(svg.contains("&lt;/svg&gt;&lt;script&gt;") && !svg.contains("<script"), "{svg}");
    }
}
