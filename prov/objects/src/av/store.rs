//! The addresses of a vector, in the table that suits its format.

use std::net::SocketAddr;

use fabric_abi::*;

use super::entry::{AddressSlot, V4Entry, V6_FLOW, V6Entry};
use super::format::{Address, Format, Layout};
use super::shared::{Name, Records, Shared};
use super::slots::{Fixed, Packed, Slots, Varied};
use super::table::Table;
use prov_base::errno::{Errno, Result};

/// The addresses of a vector.
pub struct Store {
    format: Format,
    kind: Kind,
}

enum Kind {
    V4(Table<Packed<V4Entry>>),
    V6(Table<Packed<V6Entry>>),
    Fixed(Table<Fixed>),
    Varied(Table<Varied>),
    Shared(Shared),
}

/// The index of a new address.
#[derive(Clone, Copy, Debug)]
pub enum SlotIndex {
    /// The lowest free index.
    Any,
    /// This index.
    At(u32),
}

impl Store {
    /// Creates a store for about `count` addresses, or opens the shared one.
    pub fn open(format: Format, count: usize, shared: Option<&Name<'_>>) -> Result<Self> {
        format.validate()?;
        let kind = match (shared, format.layout()) {
            (Some(name), _) => Kind::Shared(Shared::open(name, records(&format))?),
            // A vector for both address families starts with the smaller slots.
            (None, Layout::Internet | Layout::InternetText) => {
                Kind::V4(Table::expecting(count, Packed::default()))
            }
            (None, Layout::Fixed(size)) => Kind::Fixed(Table::expecting(count, Fixed::new(size))),
            (None, Layout::Text { .. } | Layout::Composite { .. }) => {
                Kind::Varied(Table::expecting(count, Varied::default()))
            }
        };
        Ok(Store { format, kind })
    }

    /// Returns the shared table, if it is one.
    pub fn shared(&self) -> Option<&Shared> {
        match &self.kind {
            Kind::Shared(shared) => Some(shared),
            _ => None,
        }
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::V4(table) => table.len(),
            Kind::V6(table) => table.len(),
            Kind::Fixed(table) => table.len(),
            Kind::Varied(table) => table.len(),
            Kind::Shared(shared) => shared.len(),
        }
    }

    /// Returns an index behind all addresses.
    pub fn end(&self) -> usize {
        match &self.kind {
            Kind::V4(table) => table.slots(),
            Kind::V6(table) => table.slots(),
            Kind::Fixed(table) => table.slots(),
            Kind::Varied(table) => table.slots(),
            Kind::Shared(shared) => shared.len(),
        }
    }

    /// Calls `read` with the address at an index.
    #[inline]
    pub fn get<R>(&self, index: u32, read: impl FnOnce(Address<'_>) -> R) -> Option<R> {
        match &self.kind {
            Kind::V4(table) => Some(read(table.get(index)?.unpack()?.into())),
            Kind::V6(table) => Some(read(table.get(index)?.unpack()?.into())),
            Kind::Fixed(table) => Some(read(table.get(index)?.into())),
            Kind::Varied(table) => Some(read(table.get(index)?.into())),
            Kind::Shared(shared) => {
                let record = shared.get(index)?;
                decode(&self.format, &record).map(read)
            }
        }
    }

    /// Returns the index of an address.
    pub fn find(&self, addr: &Address<'_>) -> Option<u32> {
        match (&self.kind, addr) {
            (_, Address::Internet(addr)) => self.find_internet(addr),
            (Kind::Fixed(table), Address::Bytes(bytes)) => table.find(bytes),
            (Kind::Varied(table), Address::Bytes(bytes)) => table.find(bytes),
            (Kind::Shared(shared), _) => shared.find(&encode(&self.format, addr).ok()?),
            _ => None,
        }
    }

    /// Returns the index of an internet address.
    #[inline]
    pub fn find_internet(&self, addr: &SocketAddr) -> Option<u32> {
        match &self.kind {
            Kind::V4(table) => table.find(V4Entry::pack(addr)?),
            Kind::V6(table) => table.find(V6Entry::pack(addr)?),
            Kind::Shared(shared) => shared.find(&encode(&self.format, &(*addr).into()).ok()?),
            Kind::Fixed(_) | Kind::Varied(_) => None,
        }
    }

    /// Inserts into a table of this process, and returns the index of the address: an existing one
    /// if `accept` agrees to it.
    #[inline]
    pub fn insert(
        &mut self,
        addr: &Address<'_>,
        place: SlotIndex,
        accept: impl Fn(u32) -> bool,
    ) -> Result<u32> {
        match (&mut self.kind, addr) {
            (Kind::V4(table), Address::Internet(addr)) => match V4Entry::pack(addr) {
                Some(entry) => insert(table, entry, place, accept),
                None => {
                    let mut table = table.convert();
                    let entry = V6Entry::pack(addr).ok_or(Errno::EINVAL)?;
                    let outcome = insert(&mut table, entry, place, accept);
                    self.kind = Kind::V6(table);
                    outcome
                }
            },
            (Kind::V6(table), Address::Internet(addr)) => {
                let entry = V6Entry::pack(addr).ok_or(Errno::EINVAL)?;
                insert(table, entry, place, accept)
            }
            (Kind::Fixed(table), Address::Bytes(bytes)) => insert(table, bytes, place, accept),
            (Kind::Varied(table), Address::Bytes(bytes)) => insert(table, bytes, place, accept),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Undoes one insertion. Returns whether the index is free, which another address may get if
    /// `reuse` is set; `-FI_EINVAL` if there is no address.
    pub fn remove(&mut self, index: u32, reuse: bool) -> Result<bool> {
        let gone = match &mut self.kind {
            Kind::V4(table) => table.remove(index, reuse),
            Kind::V6(table) => table.remove(index, reuse),
            Kind::Fixed(table) => table.remove(index, reuse),
            Kind::Varied(table) => table.remove(index, reuse),
            Kind::Shared(shared) => return shared.remove(index).map(|()| true),
        };
        gone.ok_or(Errno::EINVAL)
    }
}

#[inline]
fn insert<S: Slots>(
    table: &mut Table<S>,
    addr: S::Address<'_>,
    place: SlotIndex,
    accept: impl Fn(u32) -> bool,
) -> Result<u32> {
    let hash = table.hash(addr);
    if let Some(index) = table.find_accepted(hash, addr, accept) {
        table.insert_again(index);
        return Ok(index);
    }
    match place {
        SlotIndex::Any => table.insert(hash, addr).ok_or(Errno::ENOMEM),
        SlotIndex::At(index) if table.get(index).is_none() => {
            table.insert_at(index, hash, addr);
            Ok(index)
        }
        SlotIndex::At(_) => Err(Errno::EINVAL),
    }
}

/// Size of the prefix of a record with an address of any length: the used flag and the length.
const LENGTH_END: usize = 3;

/// Returns the record type of a shared table with this format.
fn records(format: &Format) -> Records {
    match format.max_size() {
        None if format.number() == FI_SOCKADDR_IN => Records {
            size: V4Entry::SIZE,
            format: FI_SOCKADDR_IN,
            ignored: 0..0,
        },
        None => Records {
            size: V6Entry::SIZE,
            format: FI_SOCKADDR_IP,
            ignored: V6_FLOW,
        },
        Some(max) => Records {
            size: LENGTH_END + max,
            format: format.number(),
            ignored: 0..0,
        },
    }
}

/// Encodes an address as a record.
#[allow(
    clippy::indexing_slicing,
    reason = "a record has room for a length and more"
)]
pub fn encode(format: &Format, addr: &Address<'_>) -> Result<Vec<u8>> {
    let mut record = vec![0; records(format).size];
    match addr {
        Address::Internet(addr) if format.number() == FI_SOCKADDR_IN => {
            let entry = V4Entry::pack(addr).ok_or(Errno::EINVAL)?;
            entry.encode(&mut record);
        }
        Address::Internet(addr) if format.is_internet() => {
            let entry = V6Entry::pack(addr).ok_or(Errno::EINVAL)?;
            entry.encode(&mut record);
        }
        Address::Internet(_) => return Err(Errno::EINVAL),
        Address::Bytes(bytes) => {
            let length = u16::try_from(bytes.len()).map_err(|_| Errno::EINVAL)?;
            let place = record.get_mut(LENGTH_END..LENGTH_END + bytes.len());
            place.ok_or(Errno::EINVAL)?.copy_from_slice(bytes);
            record[0] = 1;
            record[1..LENGTH_END].copy_from_slice(&length.to_ne_bytes());
        }
    }
    Ok(record)
}

/// Decodes the address in a record; `None` for invalid bytes, which another process may have
/// written.
fn decode<'a>(format: &Format, record: &'a [u8]) -> Option<Address<'a>> {
    if format.number() == FI_SOCKADDR_IN {
        return Some(V4Entry::decode(record)?.unpack()?.into());
    }
    if format.is_internet() {
        return Some(V6Entry::decode(record)?.unpack()?.into());
    }
    let length = u16::from_ne_bytes(*record.get(1..)?.first_chunk()?);
    let bytes = record.get(LENGTH_END..LENGTH_END + usize::from(length))?;
    let addr = Address::Bytes(bytes);
    format.admit(&addr).ok().map(|()| addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_the_inserted_values() {
        let v6 = "[fe80::1%3]:9".parse().unwrap();
        for (format, addr) in [
            (Format::IN, Address::Internet("10.0.0.1:7".parse().unwrap())),
            (Format::IP, Address::Internet(v6)),
            (Format::fixed(FI_ADDR_CXI, 4), Address::Bytes(&[0; 4])),
            (Format::text(20), Address::Bytes(b"fi_shm://1")),
        ] {
            let record = encode(&format, &addr).unwrap();
            assert_eq!(record.len(), records(&format).size);
            assert_eq!(decode(&format, &record), Some(addr));
        }
    }

    #[test]
    fn any_bytes_in_a_record_are_an_address_or_none() {
        let format = Format::text(20);
        let mut record = encode(&format, &Address::Bytes(b"fi_shm://1")).unwrap();
        record[1..3].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(decode(&format, &record), None);
        record[1..3].fill(0);
        assert_eq!(decode(&format, &record), None);
        assert_eq!(decode(&Format::IP, &[9; 28]).map(drop), Some(()));
        assert_eq!(decode(&Format::IP, &[9; 5]), None);
    }

    #[test]
    fn an_address_of_another_kind_is_refused() {
        let v4 = Address::Internet("10.0.0.1:7".parse().unwrap());
        let mut text = Store::open(Format::text(20), 0, None).unwrap();
        assert_eq!(
            text.insert(&v4, SlotIndex::Any, |_| true),
            Err(Errno::EINVAL)
        );
        assert_eq!(text.find(&v4), None);
        assert!(encode(&Format::text(20), &v4).is_err());
        assert!(encode(&Format::fixed(0, 4), &Address::Bytes(b"12345")).is_err());
    }
}
