//! The array at `map_addr` of a shared address vector (fi_av(3)): entry `i` is the `fi_addr_t` of
//! the `i`th address. Only the application reads it.

use std::fs::File;
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};

use prov_base::errno::{Errno, Result};
use prov_base::{file_limit, own_file};

/// Smallest number of entries of the array; unused ones take no memory.
const MIN_ENTRIES: usize = 1 << 16;

/// The mapped array.
pub struct MapArray {
    file: File,
    /// Number of entries in the file. Addresses beyond it are in the vector, but not in the array.
    entries: u64,
    mapping: MmapRaw,
}

impl MapArray {
    /// Creates the file, for at least `count` addresses. Entries take memory only when they are
    /// written.
    pub fn create(path: &Path, count: usize) -> Result {
        let file = own_file::open(path, false, true)?;
        file_limit::set_len(&file, 0)?;
        let entries = count.clamp(MIN_ENTRIES, super::table::CAPACITY);
        file_limit::set_len(&file, entries as u64 * 8)?;
        Ok(())
    }

    /// Maps the file for reading. Returns `None` if that fails, since the address vector works
    /// without it.
    pub fn open(path: &Path, read_only: bool) -> Option<Self> {
        let mapped = || {
            let file = own_file::open(path, read_only, false)?;
            let entries = file.metadata()?.len() / 8;
            // A length beyond that of any table is not mapped.
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
                    target: prov_base::logging::UTIL.av,
                    "cannot map the addresses in {}: {error}",
                    path.display()
                );
            })
            .ok()
    }

    /// Returns the address of the mapping.
    pub fn address(&self) -> usize {
        self.mapping.as_ptr() as usize
    }

    /// Writes the indices from `first` up to, but not including, `end`.
    pub fn fill(&self, first: u64, end: u64) -> Result {
        let end = end.min(self.entries);
        if first < end {
            let bytes: Vec<u8> = (first..end).flat_map(u64::to_ne_bytes).collect();
            file_limit::write_all_at(&self.file, &bytes, first * 8)?;
        }
        Ok(())
    }
}
