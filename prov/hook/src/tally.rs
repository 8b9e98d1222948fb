//! Calls and bytes by function and by size, as the profile and monitor hooks count them. The
//! functions, their order and the sizes are those of the C library's monitor hook, whose shared
//! memory has this layout.

#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::monitor::{COLUMNS, ROWS};
use fabric_abi::*;

use crate::wrap::{Call, Operation};

/// The first and the last row of each kind.
pub const RECEIVES: (usize, usize) = (0, 5);
/// Sends.
pub const SENDS: (usize, usize) = (6, 17);
/// Reads of remote memory.
pub const READS: (usize, usize) = (18, 20);
/// Writes of remote memory.
pub const WRITES: (usize, usize) = (21, 26);
/// Registrations, whose columns are interfaces to memory instead of sizes.
pub const REGISTRATIONS: (usize, usize) = (27, 29);
/// Completions by the format of their queue.
pub const COMPLETIONS: (usize, usize) = (35, 41);

/// The first row of completions with flags.
const WITH_FLAGS: usize = 36;

/// The largest size in bytes of each column but the last, which has all above.
const LIMITS: [u64; 8] = [
    64,
    512,
    1 << 10,
    4 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// Returns the column of a size.
pub fn column(bytes: u64) -> usize {
    LIMITS.iter().take_while(|limit| bytes > **limit).count()
}

/// One cell's numbers.
#[derive(Debug, Default)]
pub struct Cell {
    /// Calls or completions.
    pub count: AtomicU64,
    /// Bytes.
    pub sum: AtomicU64,
}

/// All cells.
#[derive(Debug)]
pub struct Tally([[Cell; COLUMNS.len()]; ROWS.len()]);

impl Default for Tally {
    fn default() -> Self {
        Tally(std::array::from_fn(|_| {
            std::array::from_fn(|_| Cell::default())
        }))
    }
}

impl Tally {
    /// Returns a cell.
    pub fn cell(&self, row: usize, column: usize) -> Option<&Cell> {
        self.0.get(row)?.get(column)
    }

    /// Counts a call that has returned `result`, and the completions that it has read. Returns how
    /// many things were counted.
    pub fn count(&self, call: &Call<'_>, result: i64) -> u64 {
        let operation = call.operation();
        let Some(row) = row(operation) else { return 0 };
        if operation.reads_completions() {
            if result <= 0 {
                return 0;
            }
            self.add(row, 0, 0);
            return 1 + self.count_completions(call, result);
        }
        if operation == Operation::CqReaderr {
            if result <= 0 {
                return 0;
            }
            self.add(row, 0, 0);
            return 1;
        }
        if result != 0 {
            return 0;
        }
        match row {
            _ if row <= RECEIVES.1 => self.add(row, 0, 0),
            _ if row >= REGISTRATIONS.0 => {
                self.add(row, call.memory_interface() as usize, call.bytes());
            }
            _ => {
                let bytes = call.bytes();
                self.add(row, column(bytes), bytes);
            }
        }
        1
    }

    fn count_completions(&self, call: &Call<'_>, result: i64) -> u64 {
        let first = match call.format() {
            FI_CQ_FORMAT_MSG => WITH_FLAGS,
            FI_CQ_FORMAT_DATA => WITH_FLAGS + 2,
            FI_CQ_FORMAT_TAGGED => WITH_FLAGS + 4,
            _ => COMPLETIONS.0,
        };
        let mut counted = 0;
        for completion in call.completions(result) {
            match completion.flags {
                None => self.add(first, 0, 0),
                Some(flags) if flags & FI_RECV != 0 => {
                    self.add(first + 1, column(completion.len), completion.len);
                }
                Some(flags) if flags & FI_SEND != 0 => self.add(first, 0, 0),
                Some(_) => continue,
            }
            counted += 1;
        }
        counted
    }

    fn add(&self, row: usize, column: usize, bytes: u64) {
        if let Some(cell) = self.cell(row, column) {
            cell.count.fetch_add(1, Ordering::Relaxed);
            if bytes != 0 {
                cell.sum.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the row of an operation's calls.
fn row(operation: Operation) -> Option<usize> {
    static OF: OnceLock<[Option<usize>; Operation::COUNT]> = OnceLock::new();
    let of = OF.get_or_init(|| {
        Operation::ALL.map(|operation| {
            let name = operation.name().strip_prefix("fi_")?;
            ROWS.iter().position(|row| *row == name)
        })
    });
    *of.get(operation.index())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_belongs_to_the_column_that_it_is_the_upper_limit_of() {
        for (bytes, name) in [
            (0, "0_64"),
            (64, "0_64"),
            (65, "64_512"),
            (512, "64_512"),
            (1024, "512_1K"),
            (4096, "1K_4K"),
            (65536, "4K_64K"),
            (262144, "64K_256K"),
            (1048576, "256K_1M"),
            (4194304, "1M_4M"),
            (4194305, "4M_UP"),
            (u64::MAX, "4M_UP"),
        ] {
            assert_eq!(COLUMNS[column(bytes)], name, "{bytes}");
        }
    }

    #[test]
    fn every_row_of_calls_belongs_to_one_operation() {
        for (at, name) in ROWS.iter().enumerate().take(COMPLETIONS.0) {
            let of = Operation::ALL
                .iter()
                .filter(|operation| row(**operation) == Some(at));
            assert_eq!(of.count(), 1, "{name}");
        }
        assert_eq!(ROWS[SENDS.0], "send");
        assert_eq!(ROWS[SENDS.1], "tinjectdata");
        assert_eq!((ROWS[READS.0], ROWS[READS.1]), ("read", "readmsg"));
        assert_eq!(
            (ROWS[WRITES.0], ROWS[WRITES.1]),
            ("write", "inject_writedata")
        );
        assert_eq!(
            (ROWS[REGISTRATIONS.0], ROWS[REGISTRATIONS.1]),
            ("mr_reg", "mr_regattr")
        );
        assert_eq!(
            (ROWS[COMPLETIONS.0], ROWS[WITH_FLAGS]),
            ("cq_ctx", "cq_msg_tx")
        );
    }
}
