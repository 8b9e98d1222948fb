//! The file of counters that the monitor hook and a sampler share ([`fabric_abi::monitor`]).
//!
//! A sampler maps the file. The hook reads and writes it with system calls, so that nobody who
//! shortens it can end the application.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::sync::atomic::Ordering;

use fabric_abi::monitor::{COLUMNS, COUNTERS, FINISHED, REQUESTED, ROWS, SIZE};
use prov_base::file_limit;

use super::place::Place;
use crate::tally::Tally;

/// The file of one fabric.
#[derive(Debug)]
pub struct Board {
    file: File,
    place: Place,
}

impl Board {
    /// Creates the file.
    pub fn create(place: Place, mode: u32) -> io::Result<Self> {
        let file = place.create()?;
        file_limit::set_len(&file, SIZE as u64)?;
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        Ok(Board { file, place })
    }

    /// Hands the counters over if a sampler has requested them; those that it gets are taken from
    /// the tally, so that each sample has what was counted since the one before.
    pub fn answer(&mut self, tally: &Tally) -> io::Result<()> {
        let flags = self.flags()?;
        if flags & REQUESTED == 0 {
            return Ok(());
        }
        file_limit::write_all_at(&self.file, &take(tally), 0)?;
        self.set_flags(flags & !REQUESTED)
    }

    /// Leaves the file with the last counters for a sampler, which removes it.
    pub fn leave(&mut self, tally: &Tally) -> io::Result<()> {
        let flags = self.flags()?;
        // While the counters change, a sampler finds them not there yet.
        self.set_flags(flags | REQUESTED)?;
        let mut last = take(tally);
        if flags & REQUESTED == 0 {
            // The sampler has not read those that are there.
            let mut unread = [0; COUNTERS];
            self.file.read_exact_at(&mut unread, 0)?;
            add(&mut last, &unread);
        }
        file_limit::write_all_at(&self.file, &last, 0)?;
        self.set_flags((flags | FINISHED) & !REQUESTED)
    }

    /// Removes the file.
    pub fn remove(&mut self) -> io::Result<()> {
        self.place.remove()
    }

    fn flags(&self) -> io::Result<u8> {
        let mut flags = [0];
        self.file.read_exact_at(&mut flags, COUNTERS as u64)?;
        let [flags] = flags;
        Ok(flags)
    }

    fn set_flags(&self, flags: u8) -> io::Result<()> {
        file_limit::write_all_at(&self.file, &[flags], COUNTERS as u64)
    }
}

/// Takes all numbers out of a tally, in the order of the file.
fn take(tally: &Tally) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(COUNTERS);
    for row in 0..ROWS.len() {
        let cells = || (0..COLUMNS.len()).filter_map(|column| tally.cell(row, column));
        let counts = cells().map(|cell| &cell.count);
        let sums = cells().map(|cell| &cell.sum);
        for number in counts.chain(sums) {
            bytes.extend(number.swap(0, Ordering::Relaxed).to_ne_bytes());
        }
    }
    bytes
}

/// Adds numbers to others.
fn add(to: &mut [u8], what: &[u8]) {
    let numbers = to.chunks_exact_mut(size_of::<u64>());
    for (number, more) in numbers.zip(what.chunks_exact(size_of::<u64>())) {
        let value = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let sum = value(number).wrapping_add(value(more));
        number.copy_from_slice(&sum.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::{Path, PathBuf};

    use super::super::place::tests::Base;
    use super::*;

    fn create(base: &Base, mode: u32) -> (Board, PathBuf) {
        let place = base.place();
        let path = place.path().to_owned();
        (Board::create(place, mode).unwrap(), path)
    }

    fn set(tally: &Tally, row: usize, column: usize, count: u64, sum: u64) {
        let cell = tally.cell(row, column).unwrap();
        cell.count.store(count, Ordering::Relaxed);
        cell.sum.store(sum, Ordering::Relaxed);
    }

    fn number(path: &Path, row: usize, place: usize) -> u64 {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len(), SIZE);
        let at = (row * COLUMNS.len() * 2 + place) * 8;
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn flags(path: &Path) -> u8 {
        std::fs::read(path).unwrap()[COUNTERS]
    }

    fn request(path: &Path) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[REQUESTED], COUNTERS as u64).unwrap();
    }

    #[test]
    fn a_sample_has_what_was_counted_since_the_one_before() {
        let base = Base::new("sample");
        let (mut board, path) = create(&base, 0o600);
        let tally = Tally::default();
        set(&tally, 12, 0, 5, 40);
        board.answer(&tally).unwrap();
        assert_eq!(number(&path, 12, 0), 0, "nobody has asked");
        request(&path);
        board.answer(&tally).unwrap();
        assert_eq!((number(&path, 12, 0), number(&path, 12, 9)), (5, 40));
        assert_eq!(flags(&path), 0);
        set(&tally, 12, 1, 1, 100);
        request(&path);
        board.answer(&tally).unwrap();
        assert_eq!((number(&path, 12, 0), number(&path, 12, 1)), (0, 1));
        assert_eq!(number(&path, 12, 10), 100);
        board.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn the_last_counters_include_those_that_nobody_has_read() {
        let base = Base::new("last");
        let (mut board, path) = create(&base, 0o600);
        let tally = Tally::default();
        set(&tally, 0, 0, 2, 0);
        request(&path);
        board.answer(&tally).unwrap();
        set(&tally, 0, 0, 3, 0);
        board.leave(&tally).unwrap();
        assert_eq!((number(&path, 0, 0), flags(&path)), (5, FINISHED));
    }

    #[test]
    fn the_last_counters_are_only_the_new_ones_after_a_sample() {
        let base = Base::new("new");
        let (mut board, path) = create(&base, 0o640);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let tally = Tally::default();
        set(&tally, 0, 0, 2, 0);
        request(&path);
        board.answer(&tally).unwrap();
        request(&path);
        set(&tally, 0, 0, 3, 0);
        board.leave(&tally).unwrap();
        assert_eq!((number(&path, 0, 0), flags(&path)), (3, FINISHED));
    }

    #[test]
    fn a_truncated_counter_file_is_an_error_and_no_crash() {
        let base = Base::new("short");
        let (mut board, path) = create(&base, 0o600);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(10).unwrap();
        assert!(board.answer(&Tally::default()).is_err());
    }
}
