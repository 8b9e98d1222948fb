//! `ofi_hook_profile`: counts transfers, completions and registrations by function and by size, and
//! reports them when the fabric is closed.

#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::Ordering;

use fabric_abi::monitor::{COLUMNS, ROWS};
use fabric_abi::*;
use prov_base::errno::Result;

use crate::below::Below;
use crate::tally::{COMPLETIONS, READS, RECEIVES, REGISTRATIONS, SENDS, Tally, WRITES};
use crate::wrap::{Call, Hook};

/// The hook.
pub struct Profile {
    below: Below,
    tally: Box<Tally>,
}

impl Hook for Profile {
    const NAME: &'static CStr = c"ofi_hook_profile";

    fn install(below: Below) -> Result<Self> {
        Ok(Profile {
            below,
            tally: Box::default(),
        })
    }

    fn after(&self, call: &Call<'_>, _before: u64, result: i64) {
        self.tally.count(call, result);
    }

    fn finish(&self) {
        let line = |line: &dyn fmt::Display| self.below.trace(FI_LOG_CORE, line);
        line(&format_args!("  \tprov: {}", self.below.name()));
        let transfers = [
            ("recv", RECEIVES),
            ("send", SENDS),
            ("read", READS),
            ("write", WRITES),
        ];
        report(&self.tally, ("XFER_API", "Size"), &transfers, &line);
        report(
            &self.tally,
            ("CQ", "Size"),
            &[("cq read", COMPLETIONS)],
            &line,
        );
        let registrations = [("mr reg", REGISTRATIONS)];
        report(&self.tally, ("MR REG", "Iface"), &registrations, &line);
    }
}

/// A line of the report.
struct Line<'a>([&'a str; 6]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, size, count, amount, of_count, of_amount] = self.0;
        let line =
            format!(" \t{name:<22}{size:<20}{count:<12}{amount:<12}{of_count:<12}{of_amount:<12}");
        f.write_str(line.trim_end())
    }
}

/// The numbers of one or several cells.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

/// Writes groups of rows, under one title; nothing for groups in which nothing was counted.
fn report(
    tally: &Tally,
    (names, sizes): (&str, &str),
    groups: &[(&str, (usize, usize))],
    line: &dyn Fn(&dyn fmt::Display),
) {
    let mut has_title = false;
    for (group, (first, last)) in groups {
        let mut cells = Vec::new();
        for row in *first..=*last {
            for column in 0..COLUMNS.len() {
                let Some(cell) = tally.cell(row, column) else {
                    continue;
                };
                let count = cell.count.load(Ordering::Relaxed);
                let bytes = cell.sum.load(Ordering::Relaxed);
                if count != 0 {
                    cells.push((row, column, Sum { count, bytes }));
                }
            }
        }
        let all = cells.iter().fold(Sum::default(), |all, (.., cell)| Sum {
            count: all.count + cell.count,
            bytes: all.bytes.saturating_add(cell.bytes),
        });
        if cells.is_empty() {
            continue;
        }
        if !has_title {
            line(&Line([
                names, sizes, "Count", "Amount", "% Count", "% Amount",
            ]));
            has_title = true;
        }
        if cells.len() > 1 {
            write(group, "Any", all, all, line);
        }
        let mut shown = None;
        for (row, column, cell) in &cells {
            let name = match shown == Some(*row) {
                true => String::new(),
                false => row_name(*row),
            };
            shown = Some(*row);
            let size = match *row {
                _ if cell.bytes == 0 => "Any",
                row if (REGISTRATIONS.0..=REGISTRATIONS.1).contains(&row) => {
                    MEMORY.get(*column).copied().unwrap_or("unknown")
                }
                _ => COLUMNS.get(*column).copied().unwrap_or_default(),
            };
            write(&name, size, *cell, all, line);
        }
        line(&"");
    }
}

/// The interfaces to memory, as fi_tostr(3) names them.
const MEMORY: [&str; 6] = [
    "FI_HMEM_SYSTEM",
    "FI_HMEM_CUDA",
    "FI_HMEM_ROCR",
    "FI_HMEM_ZE",
    "FI_HMEM_NEURON",
    "FI_HMEM_SYNAPSEAI",
];

fn write(name: &str, size: &str, cell: Sum, all: Sum, line: &dyn Fn(&dyn fmt::Display)) {
    let share = |part: u64, all: u64| format!("{:6.2}", 100.0 * part as f64 / all as f64);
    let (amount, of_amount) = match cell.bytes {
        0 => ("-".to_owned(), "-".to_owned()),
        bytes => (bytes.to_string(), share(bytes, all.bytes)),
    };
    line(&Line([
        name,
        size,
        &cell.count.to_string(),
        &amount,
        &share(cell.count, all.count),
        &of_amount,
    ]));
}

/// Returns the name of a row in the report: `fi_send`, `cq_msg (FI_RECV)`.
fn row_name(row: usize) -> String {
    let name = ROWS.get(row).copied().unwrap_or_default();
    if row < COMPLETIONS.0 {
        return format!("fi_{name}");
    }
    match (name.strip_suffix("_tx"), name.strip_suffix("_rx")) {
        (Some(format), _) => format!("{format} (FI_SEND)"),
        (_, Some(format)) => format!("{format} (FI_RECV)"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_report_has_a_title_a_sum_and_a_line_for_each_function_and_size() {
        let tally = Tally::default();
        for (row, column, bytes) in [(6, 0, 8), (6, 0, 24), (6, 2, 1000), (9, 0, 0)] {
            let cell = tally.cell(row, column).unwrap();
            cell.count.fetch_add(1, Ordering::Relaxed);
            cell.sum.fetch_add(bytes, Ordering::Relaxed);
        }
        let lines = RefCell::new(Vec::new());
        let line = |line: &dyn fmt::Display| lines.borrow_mut().push(line.to_string());
        report(
            &tally,
            ("XFER_API", "Size"),
            &[("recv", RECEIVES), ("send", SENDS)],
            &line,
        );
        let words: Vec<Vec<String>> = lines
            .borrow()
            .iter()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        let expected = [
            "XFER_API Size Count Amount % Count % Amount",
            "send Any 4 1032 100.00 100.00",
            "fi_send 0_64 2 32 50.00 3.10",
            "512_1K 1 1000 25.00 96.90",
            "fi_inject Any 1 - 25.00 -",
            "",
        ];
        let expected: Vec<Vec<&str>> = expected
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn rows_are_named_as_functions_and_as_formats_with_a_direction() {
        assert_eq!(row_name(0), "fi_recv");
        assert_eq!(row_name(37), "cq_msg (FI_RECV)");
        assert_eq!(row_name(36), "cq_msg (FI_SEND)");
        assert_eq!(row_name(35), "cq_ctx");
    }
}
