//! The file of counters that the monitor hook and a sampler share ([`fabric_abi::monitor`]).
//!
//! A sampler maps the file. The hook reads and writes it with system calls, so that nobody who
//! shortens it can end the application.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fabric_abi::monitor::{COLUMNS, COUNTERS, FINISHED, REQUESTED, ROWS, SIZE};

use crate::tally::Tally;

/// The file of one fabric.
#[derive(Debug)]
pub struct Board {
    file: File,
    path: PathBuf,
}

impl Board {
    /// Creates the file. One that is there already is of a process that has ended.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        file.set_len(SIZE as u64)?;
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        Ok(Board {
            file,
            path: path.to_owned(),
        })
    }

    /// Hands the counters over if a sampler has requested them; those that it gets are taken from
    /// the tally, so that each sample has what was counted since the one before.
    pub fn answer(&mut self, tally: &Tally) -> io::Result<()> {
        let flags = self.flags()?;
        if flags & REQUESTED == 0 {
            return Ok(());
        }
        self.file.write_all_at(&take(tally), 0)?;
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
        self.file.write_all_at(&last, 0)?;
        self.set_flags((flags | FINISHED) & !REQUESTED)
    }

    /// Removes the file.
    pub fn remove(&mut self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    fn flags(&self) -> io::Result<u8> {
        let mut flags = [0];
        self.file.read_exact_at(&mut flags, COUNTERS as u64)?;
        let [flags] = flags;
        Ok(flags)
    }

    fn set_flags(&self, flags: u8) -> io::Result<()> {
        self.file.write_all_at(&[flags], COUNTERS as u64)
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
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("hook-board-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("1_2_1_0_tcp")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
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
        let folder = Folder::new("sample");
        let path = folder.file();
        let mut board = Board::create(&path, 0o600).unwrap();
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
        let folder = Folder::new("last");
        let path = folder.file();
        let mut board = Board::create(&path, 0o600).unwrap();
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
        let folder = Folder::new("new");
        let path = folder.file();
        let mut board = Board::create(&path, 0o640).unwrap();
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
        let folder = Folder::new("short");
        let path = folder.file();
        let mut board = Board::create(&path, 0o600).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(10).unwrap();
        assert!(board.answer(&Tally::default()).is_err());
    }
}
