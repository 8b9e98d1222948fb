//! The table of results, for people or as comma separated values.

use super::Options;
use super::outcome::{Outcome, Pattern};

/// The head of the table.
const HEAD: &str = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec";
/// The columns added for percentiles.
const PERCENTILES_HEAD: &str = "      p50      p90      p99    p99.9      max";
/// The columns added for streams.
const RATES_HEAD: &str = "  direction";
const CSV_HEAD: &str =
    "pattern,bytes,sent,acknowledged,seconds,mb_per_sec,usec,mxfers_per_sec,p50,p90,p99,p99.9,max";

const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

/// Returns the head of the table that the options select.
pub fn head(options: &Options) -> String {
    if options.csv {
        return CSV_HEAD.to_owned();
    }
    let more = match (options.rates, options.percentiles) {
        (true, _) => RATES_HEAD,
        (false, true) => PERCENTILES_HEAD,
        (false, false) => "",
    };
    format!("{HEAD}{more}")
}

/// Returns the line for one message size.
pub fn line(options: &Options, outcome: &Outcome) -> String {
    if options.csv {
        return csv(outcome);
    }
    let mut line = table(outcome);
    if outcome.pattern != Pattern::BackAndForth {
        line += &format!("  {}", outcome.pattern.name());
    } else if options.percentiles {
        for percent in PERCENTILES {
            let latency = outcome.latencies.percentile(percent).unwrap_or(0.0);
            line += &format!("{latency:9.2}");
        }
    }
    line
}

fn csv(outcome: &Outcome) -> String {
    let mut line = format!(
        "{},{},{},{},{:.6},{:.3},{:.3},{:.6}",
        outcome.pattern.name(),
        outcome.size,
        outcome.sent,
        outcome.acknowledged,
        outcome.elapsed.as_secs_f64(),
        outcome.bandwidth(),
        outcome.micros_each(),
        1.0 / outcome.micros_each(),
    );
    for percent in PERCENTILES {
        match outcome.latencies.percentile(percent) {
            Some(latency) => line += &format!(",{latency:.3}"),
            None => line.push(','),
        }
    }
    line
}

fn table(outcome: &Outcome) -> String {
    let sent = outcome.sent;
    let each = outcome.micros_each();
    let acknowledged = match outcome.acknowledged {
        same if same == sent => format!("={:<8}", count(same)),
        more if more > sent => format!("-{:<8}", count(more - sent)),
        less => format!("+{:<8}", count(sent - less)),
    };
    format!(
        "{:<8}{:<8}{acknowledged}{:<8}{:8.2}s{:10.2}{each:11.2}{:11.2}",
        amount(outcome.size as u64),
        count(sent),
        amount(outcome.bytes()),
        outcome.elapsed.as_secs_f64(),
        outcome.bandwidth(),
        1.0 / each,
    )
}

/// Formats a number of bytes with a binary prefix, with one decimal below ten.
fn amount(bytes: u64) -> String {
    let (unit, letter) = match bytes {
        0..1024 => (1, ""),
        1024..1048576 => (1 << 10, "k"),
        1048576..1073741824 => (1 << 20, "m"),
        _ => (1 << 30, "g"),
    };
    let tenths = if bytes / unit < 10 {
        bytes % unit * 10 / unit
    } else {
        0
    };
    match tenths {
        0 => format!("{}{letter}", bytes / unit),
        tenths => format!("{}.{tenths}{letter}", bytes / unit),
    }
}

/// Formats a count with a decimal prefix.
fn count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", number / 1_000),
        1_000_000..1_000_000_000 => format!("{}m", number / 1_000_000),
        _ => format!("{}b", number / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pingpong::outcome::Latencies;

    #[test]
    fn amounts_are_short() {
        assert_eq!(amount(64), "64");
        assert_eq!(amount(1024), "1k");
        assert_eq!(amount(1536), "1.5k");
        assert_eq!(amount(12_800), "12k");
        assert_eq!(amount(6 << 20), "6m");
    }

    fn options(line: &str) -> Options {
        let words = line.split_whitespace();
        let matches = crate::pingpong::command().try_get_matches_from(words);
        Options::from_matches(&matches.unwrap()).unwrap()
    }

    fn outcome(pattern: Pattern, micros: u64) -> Outcome {
        let trips = [40, 50, 60].map(Duration::from_micros);
        let latencies = match pattern {
            Pattern::BackAndForth => Latencies::new(trips.to_vec()),
            _ => Latencies::default(),
        };
        Outcome {
            pattern,
            size: 64,
            sent: 10,
            acknowledged: 10,
            elapsed: Duration::from_micros(micros),
            latencies,
        }
    }

    #[test]
    fn a_line_stands_in_the_columns_of_the_head() {
        let plain = options("");
        let line = line(&plain, &outcome(Pattern::BackAndForth, 500));
        let known = "64      10      =10      1.2k        0.00s      2.56      25.00       0.04";
        assert_eq!(line, known);
        assert_eq!(head(&plain), HEAD);
    }

    #[test]
    fn percentiles_and_directions_stand_behind_the_c_tools_columns() {
        let percentiles = options("--percentiles");
        let shown = line(&percentiles, &outcome(Pattern::BackAndForth, 500));
        assert!(
            shown.ends_with("    25.00    30.00    30.00    30.00    30.00"),
            "{shown}"
        );
        assert_eq!(
            shown.len() - line(&options(""), &outcome(Pattern::BackAndForth, 500)).len(),
            45
        );
        assert_eq!(head(&percentiles).len() - HEAD.len(), 45);
        let rates = options("-e rdm --rates");
        let shown = line(&rates, &outcome(Pattern::BothWays, 500));
        assert!(shown.ends_with("0.04  bothways"), "{shown}");
    }

    #[test]
    fn comma_separated_values_have_as_many_fields_as_their_head() {
        let csv = options("--csv");
        let fields = head(&csv).split(',').count();
        for pattern in [Pattern::BackAndForth, Pattern::OneWay] {
            let line = line(&csv, &outcome(pattern, 500));
            assert_eq!(line.split(',').count(), fields, "{line}");
            assert!(
                line.starts_with(&format!("{},64,10,10,0.000500,", pattern.name())),
                "{line}"
            );
        }
    }
}
