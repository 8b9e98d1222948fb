//! Addresses: the name of the host and the addresses of the linked endpoints, in the C library's
//! layout, so that nodes with either library reach each other.
//!
//! ```text
//! 0    64 bytes  name of the host, terminated by a zero
//! 64   4 bytes   number of entries, an integer of the machine; then 4 bytes that mean nothing
//! 72   entries   each: 64 bytes  name of the linked provider's fabric, terminated by a zero
//!                      8 bytes   length of the address
//!                                the address, in that provider's format
//! ```
//!
//! The bytes come from peers: nothing in them is relied on.

use fabric_abi::FI_FORMAT_UNSPEC;
use prov_base::errno::{Errno, Result};
use prov_util::av::format::{Extent, Format};

use crate::links::SHM;

/// Bytes of a name, with its zero (`FI_NAME_MAX`).
const NAME: usize = 64;
/// Bytes before the first entry.
const HEAD: usize = 72;
/// Bytes of an entry before the address.
const ENTRY: usize = 72;
/// Limit of entries in an address: the C library's.
pub const MOST_ENTRIES: usize = 16;
/// Limit of the address of a linked endpoint, in bytes: what the layer kit reads.
const LONGEST_PART: usize = 256;
/// Limit of an address in bytes: what an address vector keeps.
const LONGEST: usize = 4096;
/// The length of text addresses is a multiple of this, in bytes: those of all processes of a job
/// have one length, which some programs rely on.
const TEXT: usize = 64;

/// The format of these addresses.
pub const FORMAT: Format =
    Format::composite(FI_FORMAT_UNSPEC, LONGEST, extent).checked_by(|bytes| match read(bytes) {
        Some(_) => Ok(()),
        None => Err(Errno::EINVAL),
    });

/// An address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composite {
    /// Name of the host.
    pub host: String,
    /// The addresses of the linked endpoints, with the name of each one's fabric.
    pub parts: Vec<(String, Vec<u8>)>,
}

impl Composite {
    /// Reads an address; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        read(bytes)
    }

    /// Writes the address.
    ///
    /// # Errors
    /// `-FI_E2BIG` if there are too many parts, or one is too long.
    pub fn write(&self) -> Result<Vec<u8>> {
        let count = i32::try_from(self.parts.len()).map_err(|_| Errno::E2BIG)?;
        let mut bytes = Vec::with_capacity(HEAD);
        write_name(&mut bytes, &self.host);
        bytes.extend(count.to_ne_bytes());
        bytes.extend([0; 4]);
        for (fabric, address) in &self.parts {
            write_name(&mut bytes, fabric);
            let is_text = address.last() == Some(&0) && address.contains(&b':');
            let len = match is_text {
                true => address.len().next_multiple_of(TEXT),
                false => address.len(),
            };
            bytes.extend((len as u64).to_ne_bytes());
            let end = bytes.len() + len;
            bytes.extend(address);
            bytes.resize(end, 0);
        }
        match extent(&bytes) {
            Extent::Is(len) if len == bytes.len() && len <= LONGEST => Ok(bytes),
            _ => Err(Errno::E2BIG),
        }
    }

    /// Returns the address for peers of the same host, if there is one that this library can use.
    /// The C library's shm is another one; its addresses have it in front of others, where that
    /// library looks for it, and this library's behind them.
    pub fn shm(&self) -> Option<&[u8]> {
        let at = self.parts.iter().position(|(fabric, _)| fabric == SHM)?;
        let (_, address) = self.parts.get(at)?;
        (at != 0 || self.parts.len() == 1).then_some(address)
    }
}

/// A name as C copies it: the last byte is a zero.
fn write_name(bytes: &mut Vec<u8>, name: &str) {
    let end = bytes.len() + NAME;
    bytes.extend(name.bytes().take(NAME - 1));
    bytes.resize(end, 0);
}

fn read_name(bytes: &[u8]) -> Option<String> {
    let name = bytes.get(..NAME)?;
    let len = name.iter().position(|&byte| byte == 0)?;
    String::from_utf8(name.get(..len)?.to_vec()).ok()
}

fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The number of entries; `None` if it is invalid or not there.
fn entries(bytes: &[u8]) -> Option<usize> {
    let count = i32::from_ne_bytes(number(bytes, NAME)?);
    let count = usize::try_from(count).ok()?;
    (1..=MOST_ENTRIES).contains(&count).then_some(count)
}

/// The length of the address of the entry at `at`; `None` if it is invalid or not there.
fn part_len(bytes: &[u8], at: usize) -> Option<usize> {
    let len = u64::from_ne_bytes(number(bytes, at + NAME)?);
    let len = usize::try_from(len).ok()?;
    (len <= LONGEST_PART).then_some(len)
}

/// Returns the length of the address that begins with these bytes.
pub fn extent(bytes: &[u8]) -> Extent {
    const NONE: Extent = Extent::Is(0);
    if bytes.len() < HEAD {
        return Extent::Unseen(HEAD);
    }
    let Some(count) = entries(bytes) else {
        return NONE;
    };
    let mut at = HEAD;
    for _ in 0..count {
        if bytes.len() < at + ENTRY {
            return Extent::Unseen(at + ENTRY);
        }
        let Some(len) = part_len(bytes, at) else {
            return NONE;
        };
        at += ENTRY + len;
    }
    Extent::Is(at)
}

fn read(bytes: &[u8]) -> Option<Composite> {
    let host = read_name(bytes)?;
    let mut parts = Vec::new();
    let mut at = HEAD;
    for _ in 0..entries(bytes)? {
        let fabric = read_name(bytes.get(at..)?)?;
        let len = part_len(bytes, at)?;
        at += ENTRY;
        let address = bytes.get(at..at + len)?;
        at += len;
        parts.push((fabric, address.to_vec()));
    }
    (at == bytes.len()).then_some(Composite { host, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Composite {
        Composite {
            host: "node1".into(),
            parts: vec![
                ("192.0.2.0/24".into(), vec![2, 0, 1, 2, 192, 0, 2, 1]),
                (SHM.into(), b"fi_shm://17:1000:0\0".to_vec()),
            ],
        }
    }

    #[test]
    fn addresses_have_the_layout_of_the_c_library() {
        let bytes = sample().write().unwrap();
        assert_eq!(bytes.len(), 72 + 72 + 8 + 72 + 64);
        assert_eq!(&bytes[..6], b"node1\0");
        assert_eq!(bytes[64..72], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[72..85], b"192.0.2.0/24\0");
        assert_eq!(bytes[136..144], 8u64.to_ne_bytes());
        assert_eq!(bytes[144..152], [2, 0, 1, 2, 192, 0, 2, 1]);
        assert_eq!(&bytes[152..156], b"shm\0");
        assert_eq!(extent(&bytes), Extent::Is(bytes.len()));
    }

    #[test]
    fn what_is_written_is_read() {
        let read = Composite::read(&sample().write().unwrap()).unwrap();
        assert_eq!(read.host, "node1");
        assert_eq!(read.parts[0], sample().parts[0]);
        assert!(read.shm().unwrap().starts_with(b"fi_shm://17:1000:0\0"));
    }

    #[test]
    fn a_long_name_is_cut() {
        let long = Composite {
            host: "x".repeat(100),
            ..sample()
        };
        let read = Composite::read(&long.write().unwrap()).unwrap();
        assert_eq!(read.host, "x".repeat(63));
    }

    #[test]
    fn the_shm_of_the_c_library_is_not_used() {
        let mut other = sample();
        other.parts.reverse();
        assert_eq!(other.shm(), None);
        // Alone it may be this library's.
        other.parts.truncate(1);
        assert!(other.shm().is_some());
    }

    #[test]
    fn too_many_parts_are_refused() {
        let part = sample().parts[0].clone();
        for (count, is_fine) in [(0, false), (16, true), (17, false)] {
            let parts = vec![part.clone(); count];
            let written = Composite { parts, ..sample() }.write();
            assert_eq!(written.is_ok(), is_fine, "{count}");
        }
        let parts = vec![(String::new(), vec![1; 257])];
        assert!(Composite { parts, ..sample() }.write().is_err());
    }

    #[test]
    fn hostile_lengths_and_counts_are_no_address() {
        let good = sample().write().unwrap();
        let refused = |at: usize, with: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + with.len()].copy_from_slice(with);
            assert_eq!(Composite::read(&bytes), None, "{at} {with:?}");
            assert_ne!(extent(&bytes), Extent::Is(good.len()), "{at} {with:?}");
        };
        for count in [0, -1, 1, 3, 17, i32::MAX, i32::MIN] {
            refused(64, &count.to_ne_bytes());
        }
        for len in [0, 7, 257, u64::MAX, u64::MAX - 71, 1 << 63] {
            refused(136, &len.to_ne_bytes());
        }
    }

    #[test]
    fn names_end_and_are_text() {
        let good = sample().write().unwrap();
        for at in [0, 72] {
            for bad in [[b'x'; 64], [0xff; 64]] {
                let mut bytes = good.clone();
                bytes[at..at + 64].copy_from_slice(&bad);
                assert_eq!(Composite::read(&bytes), None);
            }
        }
    }

    #[test]
    fn no_beginning_of_an_address_is_one() {
        let good = sample().write().unwrap();
        for len in 0..good.len() {
            assert_eq!(Composite::read(&good[..len]), None);
            match extent(&good[..len]) {
                Extent::Unseen(more) => assert!(more > len && more <= good.len()),
                Extent::Is(all) => assert_eq!(all, good.len()),
            }
        }
    }
}
