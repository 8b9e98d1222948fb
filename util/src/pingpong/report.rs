//! The table of results.

use std::time::Duration;

/// The head of the table.
pub const HEAD: &str =
    "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec";

/// The line for one message size. Every message counts in both directions.
pub fn line(size: usize, sent: u64, acknowledged: u64, elapsed: Duration) -> String {
    let bytes = sent * size as u64 * 2;
    let micros = elapsed.as_micros() as f64;
    let each = micros / sent as f64 / 2.0;
    let acknowledged = match acknowledged {
        same if same == sent => format!("={:<8}", count(same)),
        more if more > sent => format!("-{:<8}", count(more - sent)),
        less => format!("+{:<8}", count(sent - less)),
    };
    format!(
        "{:<8}{:<8}{acknowledged}{:<8}{:8.2}s{:10.2}{each:11.2}{:11.2}",
        amount(size as u64),
        count(sent),
        amount(bytes),
        micros / 1e6,
        bytes as f64 / micros,
        1.0 / each,
    )
}

/// Bytes with a binary prefix; a digit behind the point below ten.
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

/// A count with a decimal prefix.
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
    use super::*;

    #[test]
    fn amounts_are_short() {
        assert_eq!(amount(64), "64");
        assert_eq!(amount(1024), "1k");
        assert_eq!(amount(1536), "1.5k");
        assert_eq!(amount(12_800), "12k");
        assert_eq!(amount(6 << 20), "6m");
    }

    #[test]
    fn a_line_stands_in_the_columns_of_the_head() {
        let line = line(64, 10, 10, Duration::from_micros(500));
        let known = "64      10      =10      1.2k        0.00s      2.56      25.00       0.04";
        assert_eq!(line, known);
    }
}
