//! The array that a shared address vector offers at `map_addr` (fi_av(3)): its
//! entry `i` is the `fi_addr_t` of the `i`th address. Only the application
//! reads it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};

use crate::errno::{Errno, Result};
use crate::own_file;

/// Entries of an array for which the application expects fewer.
const MIN_ENTRIES: usize = 1 << 16;

/// The mapped array.
pub struct MapArray {
    file: File,
    /// How many entries the file has room for. Later addresses are in the
    /// vector, but not in the array.
    entries: u64,
    mapping: MmapRaw,
}

impl MapArray {
    /// Makes the file, for at least `count` addresses. Entries take memory
    /// once they are used.
    pub fn create(path: &Path, count: usize) -> Result {
        let file = own_file::open(path, false, true)?;
        file.set_len(0)?;
        let entries = count.clamp(MIN_ENTRIES, super::table::CAPACITY);
        file.set_len(entries as u64 * 8)?;
        Ok(())
    }

    /// Maps the file for reading; `None` where that fails, since the address
    /// vector works without.
    pub fn open(path: &Path, read_only: bool) -> Option<Self> {
        let mapped = || {
            let file = own_file::open(path, read_only, false)?;
            let entries = file.metadata()?.len() / 8;
            // A length that no table has is not mapped.
            let entries = entries.min(super::table::CAPACITY as u64);
            let mapping = MmapOptions::new()
                .len(entries as usize * 8)
                .map_raw_read_only(&file)?;
            Ok(MapArray {
                file,
                entries,
                mapping,
            })
        };
        mapped()
            .inspect_err(|error: &Errno| {
                log::warn!(
                    target: crate::logging::UTIL.av,
                    "cannot map the addresses in {}: {error}",
                    path.display()
                );
            })
            .ok()
    }

    /// Where it is mapped.
    pub fn address(&self) -> usize {
        self.mapping.as_ptr() as usize
    }

    /// Enters the indices from `first` up to, but not including, `end`.
    pub fn fill(&self, first: u64, end: u64) -> Result {
        let end = end.min(self.entries);
        if first < end {
            let bytes: Vec<u8> = (first..end).flat_map(u64::to_ne_bytes).collect();
            self.file.write_all_at(&bytes, first * 8)?;
        }
        Ok(())
    }
}
