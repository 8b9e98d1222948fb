//! A drawing of the results by message size: latencies of single messages, bandwidths of streams;
//! as text or as SVG.

use std::fmt::Write;

use super::outcome::{Outcome, Pattern};

/// The curve of one pattern.
struct Curve {
    name: &'static str,
    /// Message size in bytes and value, in the order of the sizes.
    points: Vec<(usize, f64)>,
}

/// Returns the curves, and the unit of their values.
fn curves(outcomes: &[Outcome]) -> (Vec<Curve>, &'static str) {
    let is_stream = outcomes
        .iter()
        .any(|outcome| outcome.pattern != Pattern::BackAndForth);
    let value = |outcome: &Outcome| match is_stream {
        true => outcome.bandwidth(),
        false => outcome.micros_each(),
    };
    let curve = |pattern: Pattern| {
        let of = outcomes.iter().filter(|outcome| outcome.pattern == pattern);
        Curve {
            name: pattern.name(),
            points: of.map(|outcome| (outcome.size, value(outcome))).collect(),
        }
    };
    let all = [Pattern::BackAndForth, Pattern::OneWay, Pattern::BothWays].map(curve);
    let drawn = all.into_iter().filter(|curve| !curve.points.is_empty());
    let unit = if is_stream { "MB/sec" } else { "usec/xfer" };
    (drawn.collect(), unit)
}

/// Draws rows of bars whose length is that of the value, on a logarithmic scale.
pub fn text(outcomes: &[Outcome]) -> String {
    const WIDTH: f64 = 50.0;
    let (curves, unit) = curves(outcomes);
    let (low, high) = decades(
        curves
            .iter()
            .flat_map(|curve| &curve.points)
            .map(|point| point.1),
    );
    let mut out = String::new();
    for curve in curves {
        let _ = writeln!(
            out,
            "{} ({unit}, each + is a step on a logarithmic scale)",
            curve.name
        );
        for (size, value) in curve.points {
            let share = (value.log10() - low) / (high - low);
            let bar = "+".repeat((share * WIDTH).round().clamp(1.0, WIDTH) as usize);
            let _ = writeln!(out, "{size:>10} {value:>12.2} {bar}");
        }
    }
    out
}

/// Draws a curve for each pattern, with two logarithmic axes.
pub fn svg(outcomes: &[Outcome], title: &str) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 400.0;
    // Margins, with room for the labels.
    const LEFT: f64 = 70.0;
    const RIGHT: f64 = 20.0;
    const TOP: f64 = 40.0;
    const BOTTOM: f64 = 50.0;
    const COLOURS: [&str; 3] = ["#1f77b4", "#d62728", "#2ca02c"];
    let (curves, unit) = curves(outcomes);
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (low, high) = decades(all().map(|point| point.1));
    // A message without bytes is drawn at the place of one byte.
    let bits = |size: usize| (size.max(1) as f64).log2();
    let first = all()
        .map(|point| bits(point.0))
        .fold(f64::INFINITY, f64::min);
    let last = all().map(|point| bits(point.0)).fold(0.0, f64::max);
    let span = (last - first).max(1.0);
    let x = |size: usize| LEFT + (bits(size) - first) / span * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        HEIGHT - BOTTOM - (value.log10() - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    for decade in low as i32..=high as i32 {
        let value = 10f64.powi(decade);
        let (at, right) = (y(value), WIDTH - RIGHT);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    let sizes = curves.first().map(|curve| curve.points.as_slice());
    let sizes = sizes.unwrap_or_default();
    // As many labels as there is space for.
    for (size, _) in sizes.iter().step_by(sizes.len().div_ceil(8).max(1)) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{size}</text>",
            x(*size),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">bytes</text>\
         <text x=\"14\" y=\"{:.1}\" transform=\"rotate(-90 14 {2:.1})\" \
         text-anchor=\"middle\">{unit}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        HEIGHT / 2.0
    );
    for ((curve, colour), row) in curves.iter().zip(COLOURS).zip(0u8..) {
        let points: Vec<String> = curve
            .points
            .iter()
            .map(|(size, value)| format!("{:.1},{:.1}", x(*size), y(*value)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            points.join(" "),
            LEFT + 10.0,
            TOP + 14.0 + 16.0 * f64::from(row),
            curve.name
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The powers of ten around all values, as exponents; at least one decade apart.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let usable = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value.log10()), high.max(value.log10()))
    });
    if low > high {
        return (0.0, 1.0);
    }
    let (low, high) = (low.floor(), high.ceil());
    (low, high.max(low + 1.0))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pingpong::outcome::Latencies;

    fn outcome(pattern: Pattern, size: usize, micros: u64) -> Outcome {
        Outcome {
            pattern,
            size,
            sent: 1,
            acknowledged: 1,
            elapsed: Duration::from_micros(micros),
            latencies: Latencies::default(),
        }
    }

    #[test]
    fn a_text_has_a_row_for_each_size_and_longer_bars_for_more() {
        let outcomes = [
            outcome(Pattern::BackAndForth, 0, 4),
            outcome(Pattern::BackAndForth, 1024, 40),
            outcome(Pattern::BackAndForth, 1 << 20, 2000),
        ];
        let text = text(&outcomes);
        let bars: Vec<usize> = text
            .lines()
            .skip(1)
            .map(|row| row.matches('+').count())
            .collect();
        assert_eq!(bars.len(), 3, "{text}");
        assert!(
            bars[0] >= 1 && bars[0] < bars[1] && bars[1] < bars[2],
            "{text}"
        );
        assert!(text.starts_with("pingpong (usec/xfer"), "{text}");
    }

    #[test]
    fn an_svg_has_a_curve_for_each_direction() {
        let outcomes = [
            outcome(Pattern::OneWay, 64, 10),
            outcome(Pattern::BothWays, 64, 10),
            outcome(Pattern::OneWay, 4096, 20),
            outcome(Pattern::BothWays, 4096, 20),
        ];
        let svg = svg(&outcomes, "tcp <rdm>");
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert!(svg.contains("oneway") && svg.contains("bothways") && svg.contains("MB/sec"));
        assert!(svg.contains("tcp &lt;rdm&gt;") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn one_size_or_none_can_be_drawn() {
        for outcomes in [vec![], vec![outcome(Pattern::BackAndForth, 0, 5)]] {
            let svg = svg(&outcomes, "");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let _ = text(&outcomes);
        }
    }
}
