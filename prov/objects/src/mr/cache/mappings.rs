//! The kinds of memory mappings of this process (proc_pid_maps(5)).

use std::fs::File;
use std::os::fd::AsRawFd;

use super::intervals::Interval;
use prov_base::errno::{Errno, Result};

/// A mapping.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// The address after the last byte.
    end: usize,
    /// Whether it is anonymous and not shared: backed neither by a file nor by another process's
    /// memory.
    is_private: bool,
}

/// `struct procmap_query`
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    mapping_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const MAPPING_SHARED: u64 = 8;

const MAPS: &str = "/proc/self/maps";

/// Returns whether all of it is private anonymous memory of ordinary pages, which changes only by
/// calls that name its addresses. `false` if this is unknown.
pub fn are_private(memory: Interval) -> bool {
    let Ok(maps) = File::open(MAPS) else {
        return false;
    };
    let all = all_private(memory, |address| query(&maps, address));
    all.or_else(|_| all_private(memory, text()?))
        .unwrap_or(false)
}

/// Checks the mappings that `mapping_at` returns.
fn all_private(
    memory: Interval,
    mut mapping_at: impl FnMut(usize) -> Result<Option<Mapping>>,
) -> Result<bool> {
    let mut address = memory.start();
    while address < memory.end() {
        match mapping_at(address)? {
            Some(mapping) if mapping.is_private => address = mapping.end,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Queries one mapping, which Linux supports from version 6.11.
fn query(maps: &File, address: usize) -> Result<Option<Mapping>> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address: address as u64,
        ..Query::default()
    };
    // SAFETY: the call reads and writes the structure only, which contains its size and no buffers
    // for names.
    match unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &mut query) } {
        0 => Ok(Some(Mapping {
            end: query.end as usize,
            is_private: query.inode == 0 && query.mapping_flags & MAPPING_SHARED == 0,
        })),
        _ => match Errno::last_os_error() {
            Errno::ENOENT => Ok(None),
            error => Err(error),
        },
    }
}

/// Reads all mappings, and returns a function that looks up ascending addresses.
fn text() -> Result<impl FnMut(usize) -> Result<Option<Mapping>>> {
    let text = std::fs::read(MAPS)?;
    let mappings: Vec<_> = text
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect();
    let mut mappings = mappings.into_iter().peekable();
    Ok(move |address| {
        while mappings
            .next_if(|(_, mapping)| mapping.end <= address)
            .is_some()
        {}
        let next = mappings.next_if(|&(start, _)| start <= address);
        Ok(next.map(|(_, mapping)| mapping))
    })
}

/// Parses `start-end permissions offset device inode name`: returns the start, and the rest.
fn parse(line: &[u8]) -> Option<(usize, Mapping)> {
    let fields = line.split(u8::is_ascii_whitespace);
    let mut fields = fields.filter_map(|field| std::str::from_utf8(field).ok());
    let (start, end) = fields.next()?.split_once('-')?;
    let is_shared = fields.next()?.ends_with('s');
    let has_no_file = fields.nth(2)? == "0";
    let mapping = Mapping {
        end: usize::from_str_radix(end, 16).ok()?,
        is_private: has_no_file && !is_shared,
    };
    Some((usize::from_str_radix(start, 16).ok()?, mapping))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use memmap2::{MmapMut, MmapOptions};

    /// Compares the results of both ways.
    fn are_private_in_any_way(memory: Interval) -> bool {
        let read = all_private(memory, text().unwrap()).unwrap();
        assert_eq!(are_private(memory), read);
        let maps = File::open(MAPS).unwrap();
        match all_private(memory, |address| query(&maps, address)) {
            Ok(told) => assert_eq!(told, read),
            Err(error) => println!("{error}: an older system"),
        }
        read
    }

    fn memory_of(bytes: &[u8]) -> Interval {
        Interval::new(bytes.as_ptr().addr(), bytes.len())
    }

    #[test]
    fn memory_of_the_process_alone_is_private() {
        let memory = MmapMut::map_anon(64 * 4096).unwrap();
        assert!(are_private_in_any_way(memory_of(&memory)));
        assert!(are_private_in_any_way(memory_of(&memory[5000..5010])));
        let boxed = vec![1u8; 100];
        assert!(are_private_in_any_way(memory_of(&boxed)));
        let local = [1u8; 100];
        assert!(are_private_in_any_way(memory_of(&local)));
    }

    #[test]
    fn files_and_shared_memory_are_not_private() {
        let file = rustix::fs::memfd_create("fi_test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(4096).unwrap();
        // SAFETY: no other process changes the file while it is mapped.
        let (shared, copied) = unsafe {
            (
                MmapMut::map_mut(&file).unwrap(),
                MmapOptions::new().map_copy(&file).unwrap(),
            )
        };
        assert!(!are_private_in_any_way(memory_of(&shared)));
        assert!(!are_private_in_any_way(memory_of(&copied)));
        let text = are_private as fn(Interval) -> bool as usize;
        assert!(!are_private_in_any_way(Interval::new(text, 1)));
    }

    #[test]
    fn unmapped_memory_is_not_private() {
        assert!(!are_private_in_any_way(Interval::new(0, 4096)));
        let memory = MmapMut::map_anon(4096).unwrap();
        let until_the_end = usize::MAX - memory.as_ptr().addr();
        let all = Interval::new(memory.as_ptr().addr(), until_the_end);
        assert!(!are_private_in_any_way(all));
    }
}
