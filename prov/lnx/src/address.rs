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
//! A caller of fi_getname(3) that has room for less, but for 64 bytes (`FI_NAME_MAX`; MPICH), gets a
//! short form, which only this library understands:
//!
//! ```text
//! 0    1 byte    1, with which no name of a host begins
//! 1    3 bytes   "lnx"
//! 4    8 bytes   hash of the name of the host
//! 12   1 byte    number of entries
//! 13   entries   each: 4 bytes  hash of the name of the fabric
//!                      1 byte   length of the address
//!                      1 byte   number of its bytes that follow; the others are zero
//!                               those bytes
//!      zeros     up to 64 bytes
//! ```
//!
//! The bytes come from peers: nothing in them is relied on.

use fabric_abi::{FI_FORMAT_UNSPEC, FI_SOCKADDR};
use prov_base::address_text;
use prov_base::errno::{Errno, Result};
use prov_base::siphash::SipHash;
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
pub const FORMAT: Format = Format::composite(FI_FORMAT_UNSPEC, LONGEST, extent)
    .checked_by(|bytes| match read(bytes) {
        Some(_) => Ok(()),
        None => Err(Errno::EINVAL),
    })
    .printed_by(|bytes| Some(read(bytes)?.to_string()));

/// The beginning of the short form.
const SHORT_MARK: &[u8; 4] = b"\x01lnx";
/// Bytes of the short form before the first entry.
const SHORT_HEAD: usize = 13;
/// Bytes of an entry of the short form before the address.
const SHORT_ENTRY: usize = 6;
/// The bits of the hash of a fabric in the short form.
const FABRIC_BITS: u64 = u32::MAX as u64;

/// A name in an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// The name.
    Text(String),
    /// Its hash.
    Hash {
        /// The hash.
        hash: u64,
        /// The bits of it that are known.
        bits: u64,
    },
}

impl Name {
    /// Whether it is the name of something with this one.
    pub fn is(&self, name: &str) -> bool {
        match self {
            Name::Text(text) => text == name,
            Name::Hash { hash, bits } => hash & bits == hash_of(name) & bits,
        }
    }

    fn hash(&self) -> u64 {
        match self {
            Name::Text(text) => hash_of(text),
            Name::Hash { hash, .. } => *hash,
        }
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name::Text(text)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Text(text) => f.write_str(text),
            Name::Hash { hash, .. } => write!(f, "with the hash {hash:x}"),
        }
    }
}

fn hash_of(name: &str) -> u64 {
    let mut hash = SipHash::default();
    hash.write(name.as_bytes());
    hash.finish()
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    /// Name of the host.
    pub host: Name,
    /// The addresses of the linked endpoints, with the name of each one's fabric.
    pub parts: Vec<(Name, Vec<u8>)>,
}

/// As fi_av_straddr(3) prints it.
impl std::fmt::Display for Composite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Name::Text(host) => write!(f, "fi_lnx://{host}")?,
            Name::Hash { hash, .. } => write!(f, "fi_lnx://{hash:016x}")?,
        }
        for (number, (_, part)) in self.parts.iter().enumerate() {
            f.write_str(if number == 0 { "/" } else { "+" })?;
            let printable = |text: &str| text.chars().all(|char| char.is_ascii_graphic());
            let text = std::str::from_utf8(part).ok();
            let text = text.map(|text| text.trim_end_matches('\0'));
            match (address_text::text(FI_SOCKADDR, part), text) {
                (Some(internet), _) => f.write_str(&internet)?,
                (None, Some(text)) if !text.is_empty() && printable(text) => f.write_str(text)?,
                _ => part.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
            }
        }
        Ok(())
    }
}

impl Composite {
    /// Reads an address; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        read(bytes)
    }

    /// Writes the short form for a buffer of this size, with as many parts as fit, the last one in
    /// any case. `None` if it is too small. A part without an address, as peers may send it, has no
    /// short form.
    pub fn write_short(&self, room: usize) -> Option<Vec<u8>> {
        let shortened = |(fabric, address): &(Name, Vec<u8>)| {
            if address.is_empty() {
                return None;
            }
            let used = address.iter().rposition(|&byte| byte != 0);
            let used = address.get(..used.map_or(0, |last| last + 1))?;
            let mut entry = (fabric.hash() as u32).to_ne_bytes().to_vec();
            entry.push(u8::try_from(address.len()).ok()?);
            entry.push(u8::try_from(used.len()).ok()?);
            entry.extend(used);
            Some(entry)
        };
        let (last, others) = self.parts.split_last()?;
        let last = shortened(last)?;
        let mut left = NAME.checked_sub(SHORT_HEAD + last.len())?;
        let mut entries = Vec::new();
        for entry in others.iter().filter_map(shortened) {
            if let Some(less) = left.checked_sub(entry.len()) {
                left = less;
                entries.push(entry);
            }
        }
        entries.push(last);
        let mut bytes = SHORT_MARK.to_vec();
        bytes.extend(self.host.hash().to_ne_bytes());
        bytes.push(entries.len() as u8);
        bytes.extend(entries.concat());
        bytes.resize(NAME, 0);
        (room >= NAME).then_some(bytes)
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
        let at = self.parts.iter().position(|(fabric, _)| fabric.is(SHM))?;
        let (_, address) = self.parts.get(at)?;
        (at != 0 || self.parts.len() == 1).then_some(address)
    }
}

/// A name as C copies it: the last byte is a zero.
fn write_name(bytes: &mut Vec<u8>, name: &Name) {
    let end = bytes.len() + NAME;
    if let Name::Text(name) = name {
        bytes.extend(name.bytes().take(NAME - 1));
    }
    bytes.resize(end, 0);
}

fn read_name(bytes: &[u8]) -> Option<Name> {
    let name = bytes.get(..NAME)?;
    let len = name.iter().position(|&byte| byte == 0)?;
    String::from_utf8(name.get(..len)?.to_vec())
        .ok()
        .map(Name::Text)
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
    if bytes.is_empty() {
        // The short form is not longer than the name of the host.
        return Extent::Unseen(NAME);
    }
    if bytes.starts_with(SHORT_MARK) {
        return Extent::Is(NAME);
    }
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

fn read_short(bytes: &[u8]) -> Option<Composite> {
    let host = Name::Hash {
        hash: u64::from_ne_bytes(number(bytes, SHORT_MARK.len())?),
        bits: u64::MAX,
    };
    let count = usize::from(*bytes.get(SHORT_HEAD - 1)?);
    let mut parts = Vec::new();
    let mut at = SHORT_HEAD;
    for _ in 0..count {
        let hash = u32::from_ne_bytes(number(bytes, at)?);
        let &[len, used] = bytes.get(at + 4..at + SHORT_ENTRY)? else {
            return None;
        };
        at += SHORT_ENTRY;
        let mut address = bytes.get(at..at + usize::from(used))?.to_vec();
        at += address.len();
        if len == 0 || address.len() > usize::from(len) {
            return None;
        }
        address.resize(len.into(), 0);
        let fabric = Name::Hash {
            hash: hash.into(),
            bits: FABRIC_BITS,
        };
        parts.push((fabric, address));
    }
    (bytes.len() == NAME && count != 0).then_some(Composite { host, parts })
}

fn read(bytes: &[u8]) -> Option<Composite> {
    if bytes.starts_with(SHORT_MARK) {
        return read_short(bytes);
    }
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
#[path = "../../../fuzz/src/address_check.rs"]
mod address_check;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Name {
        name.to_owned().into()
    }

    fn sample() -> Composite {
        Composite {
            host: Name::from("node1".to_owned()),
            parts: vec![
                (named("192.0.2.0/24"), vec![2, 0, 1, 2, 192, 0, 2, 1]),
                (named(SHM), b"fi_shm://17:1000:0\0".to_vec()),
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
    fn the_text_names_the_host_and_the_addresses_of_all_parts() {
        let text = FORMAT.to_text(&sample().write().unwrap()).unwrap();
        let internet = address_text::text(FI_SOCKADDR, &[2, 0, 1, 2, 192, 0, 2, 1]);
        let internet = internet.unwrap_or_else(|| "02000102c0000201".to_owned());
        assert_eq!(
            text,
            format!("fi_lnx://node1/{internet}+fi_shm://17:1000:0")
        );
        let mut unknown = sample();
        unknown.parts = vec![(named("standin"), vec![7, 0, 0, 0])];
        assert_eq!(unknown.to_string(), "fi_lnx://node1/07000000");
        assert_eq!(FORMAT.to_text(b"no address"), None);
    }

    #[test]
    fn a_part_without_an_address_has_no_short_form() {
        let mut address = sample();
        address.parts[0].1.clear();
        address_check::check(&address.write().unwrap());
        let short = Composite::read(&address.write_short(NAME).unwrap()).unwrap();
        assert_eq!(short.parts.len(), 1);
        address.parts.truncate(1);
        assert_eq!(address.write_short(NAME), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let read = Composite::read(&sample().write().unwrap()).unwrap();
        assert_eq!(read.host, named("node1"));
        assert_eq!(read.parts[0], sample().parts[0]);
        assert!(read.shm().unwrap().starts_with(b"fi_shm://17:1000:0\0"));
    }

    #[test]
    fn a_long_name_is_cut() {
        let long = Composite {
            host: named(&"x".repeat(100)),
            ..sample()
        };
        let read = Composite::read(&long.write().unwrap()).unwrap();
        assert_eq!(read.host, named(&"x".repeat(63)));
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
        let parts = vec![(named(""), vec![1; 257])];
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
    fn the_short_form_has_the_same_peers() {
        let mut long = sample();
        long.parts[0].1.extend([0; 8]);
        let bytes = long.write_short(64).unwrap();
        assert_eq!(extent(&bytes), Extent::Is(64));
        let read = Composite::read(&bytes).unwrap();
        assert!(read.host.is("node1") && !read.host.is("node2"));
        assert_eq!(read.parts.len(), 2);
        assert!(read.parts[0].0.is("192.0.2.0/24") && !read.parts[0].0.is(SHM));
        assert_eq!(read.parts[0].1, long.parts[0].1);
        assert_eq!(read.shm(), Some(&*long.parts[1].1));
        assert_eq!(long.write_short(65), Some(bytes));
        assert_eq!(long.write_short(63), None);
    }

    #[test]
    fn the_short_form_leaves_out_what_does_not_fit() {
        let mut long = sample();
        let network = long.parts[0].clone();
        long.parts.splice(0..0, vec![network; 5]);
        let read = Composite::read(&long.write_short(64).unwrap()).unwrap();
        assert_eq!(read.parts.len(), 2);
        assert!(read.shm().is_some());
        long.parts = vec![(named(SHM), vec![1; 60])];
        assert_eq!(long.write_short(64), None);
    }

    #[test]
    fn a_hostile_short_form_is_no_address() {
        let good = sample().write_short(64).unwrap();
        for (at, value) in [
            (12, 0),
            (12, 3),
            (12, 255),
            (17, 0),
            (17, 7),
            (18, 255),
            (18, 9),
        ] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(Composite::read(&bytes), None, "{at} {value}");
        }
        for len in 0..64 {
            assert_eq!(Composite::read(&good[..len]), None);
        }
    }

    #[test]
    fn damaged_addresses_are_read_as_others_or_not_at_all() {
        for good in [sample().write().unwrap(), sample().write_short(64).unwrap()] {
            address_check::check(&good);
            for at in 0..good.len() {
                for value in [0, 1, 7, 63, 64, 127, 128, 255] {
                    let mut bytes = good.clone();
                    bytes[at] = value;
                    address_check::check(&bytes);
                    address_check::check(&bytes[..at]);
                }
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
