//! Memory of devices that other processes of this host may open.
//!
//! An allocation that is offered to other processes has a card in a table of this process: the handle
//! with which its driver opens the allocation in another process, and a random number. Processes find
//! the table through a [`Seal`](crate::process_memory::Seal), and read it as they read any memory of
//! this process: a process that may not do that, has no handle of this one. A [`Location`] takes the place of an address: it
//! names the card, and the offset in the allocation.
//!
//! A card lasts as long as its allocation. The driver numbers allocations, so that another one at the
//! same address is recognised; the number on a card that is withdrawn is overwritten first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::buffer::Iov;
use crate::device_memory::handles::{Allocation, DEVICE, HANDLE, Handle, Opened};
use crate::device_memory::{Copier, Kind, interfaces};
use crate::errno::{Errno, Result};
use crate::random;

/// The place of bytes of a device's memory, in the form of an address that no process has: an
/// access to it as to the host's memory fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The number of the card; 0 is none.
    card: u16,
    /// Bytes from the begin of the allocation.
    offset: u64,
}

/// Number of cards, each for an allocation: beyond that, memory is not offered to other processes.
const CARDS: usize = 1024;
/// The bit of an address that user space has on no architecture.
const MARK: u64 = 1 << 63;
/// Bits of an offset: allocations are shorter than 256 TiB.
const OFFSET: u32 = 48;

impl Location {
    /// Whether a value is a location instead of an address.
    #[inline]
    pub fn is_one(addr: u64) -> bool {
        addr & MARK != 0
    }

    /// Reads an address.
    pub fn read(addr: u64) -> Option<Location> {
        let card = ((addr & !MARK) >> OFFSET) as u16;
        let is_one = Location::is_one(addr) && card != 0 && usize::from(card) < CARDS;
        is_one.then_some(Location {
            card,
            offset: addr & ((1 << OFFSET) - 1),
        })
    }

    fn write(self) -> u64 {
        MARK | u64::from(self.card) << OFFSET | self.offset
    }

    /// Returns the address of its card in a process with its table at `table`.
    pub fn card(self, table: u64) -> u64 {
        table.wrapping_add((usize::from(self.card) * size_of::<Card>()) as u64)
    }

    /// Returns the offset in the allocation.
    pub fn offset(self) -> u64 {
        self.offset
    }
}

/// Words of a card: its number, 0 if it describes nothing; the interface; the device; the handle.
const WORDS: usize = 2 + (DEVICE + HANDLE) / 8;

#[repr(C)]
struct Card([AtomicU64; WORDS]);

/// The cards of this process; the first one is not used.
static TABLE: [Card; CARDS] = [const { Card([const { AtomicU64::new(0) }; WORDS]) }; CARDS];

/// Returns the address of the table of this process.
pub fn table_of_this_process() -> u64 {
    (&raw const TABLE).expose_provenance() as u64
}

/// What a card says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The card's number.
    pub number: u64,
    /// The handle.
    pub handle: Handle,
}

/// Bytes of a card.
pub const CARD: usize = WORDS * 8;

impl Reading {
    /// Decodes the bytes of a card, which another process may have written; `None` if it describes
    /// nothing.
    pub fn decode(bytes: &[u8; CARD]) -> Option<Reading> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (interface, rest) = rest.split_first_chunk::<8>()?;
        let (device, rest) = rest.split_first_chunk::<DEVICE>()?;
        let (handle, _) = rest.split_first_chunk::<HANDLE>()?;
        let number = u64::from_ne_bytes(*number);
        Some(Reading {
            number,
            handle: Handle {
                interface: u32::try_from(u64::from_ne_bytes(*interface)).ok()?,
                device: *device,
                handle: *handle,
            },
        })
        .filter(|_| number != 0)
    }
}

impl Card {
    /// Writes the number last.
    fn fill(&self, number: u64, handle: &Handle) {
        let mut bytes = [0; DEVICE + HANDLE];
        let (device, rest) = bytes.split_at_mut(DEVICE);
        device.copy_from_slice(&handle.device);
        rest.copy_from_slice(&handle.handle);
        let (words, _) = bytes.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let words = [u64::from(handle.interface)].into_iter().chain(words);
        let [first, places @ ..] = &self.0;
        for (place, word) in places.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        first.store(number, Ordering::Release);
    }

    /// Overwrites the number, before the memory is another one's.
    fn withdraw(&self) {
        let [first, ..] = &self.0;
        first.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// An allocation with a place in the table.
struct Entry {
    card: u16,
    kind: Kind,
    allocation: Allocation,
    /// Whether the driver has made a handle.
    is_shared: bool,
}

#[derive(Default)]
struct Exports {
    /// By the kind, and the first address.
    entries: HashMap<(Kind, usize), Entry>,
}

static EXPORTS: LazyLock<Mutex<Exports>> = LazyLock::new(Mutex::default);

impl Exports {
    /// Returns a card that is free, if there is one. Those of allocations that are gone are freed.
    fn free_card(&mut self) -> Option<u16> {
        if self.entries.len() + 1 >= CARDS {
            self.entries.retain(|_, entry| {
                let copier = entry.kind.copier().ok().flatten();
                let found = copier.and_then(|copier| copier.allocation(entry.allocation.base));
                let lives = found == Some(entry.allocation);
                if !lives {
                    withdraw(entry.card);
                }
                lives
            });
        }
        let mut used = [false; CARDS];
        for entry in self.entries.values() {
            if let Some(used) = used.get_mut(usize::from(entry.card)) {
                *used = true;
            }
        }
        let card = used.iter().skip(1).position(|used| !used)?;
        u16::try_from(card + 1).ok()
    }

    /// Returns the card of an allocation, if the driver makes handles for it.
    fn card(&mut self, kind: Kind, copier: &dyn Copier, allocation: Allocation) -> Option<u16> {
        let key = (kind, allocation.base);
        match self.entries.get(&key) {
            Some(entry) if entry.allocation == allocation => {
                return entry.is_shared.then_some(entry.card);
            }
            Some(entry) => {
                withdraw(entry.card);
                self.entries.remove(&key);
            }
            None => {}
        }
        let card = self.free_card()?;
        let number = random::secret().ok()?.max(1);
        let handle = copier.handle(allocation);
        if let (Ok(handle), Some(place)) = (&handle, TABLE.get(usize::from(card))) {
            place.fill(number, handle);
        }
        let is_shared = handle.is_ok();
        let entry = Entry {
            card,
            kind,
            allocation,
            is_shared,
        };
        self.entries.insert(key, entry);
        is_shared.then_some(card)
    }
}

fn withdraw(card: u16) {
    if let Some(place) = TABLE.get(usize::from(card)) {
        place.withdraw();
    }
}

/// Returns the location of memory of a device for other processes, in place of its address; `None` if
/// they cannot open it.
pub fn export(kind: Kind, address: usize, len: usize) -> Option<u64> {
    let copier = kind.copier().ok().flatten()?;
    let allocation = copier.allocation(address)?;
    let offset = address.checked_sub(allocation.base)?;
    let is_within = offset.checked_add(len)? <= allocation.len;
    let offset = u64::try_from(offset).ok()?;
    if !is_within || (allocation.len as u64) >= 1 << OFFSET {
        return None;
    }
    let card = EXPORTS.lock().card(kind, &*copier, allocation)?;
    Some(Location { card, offset }.write())
}

/// Returns memory of this process that it has offered itself.
///
/// # Errors
/// `-FI_EFAULT` if the location is none of this process's.
pub fn own(location: Location, len: usize) -> Result<Iov<'static>> {
    let exports = EXPORTS.lock();
    let mut entries = exports.entries.values();
    let entry = entries.find(|entry| entry.card == location.card);
    let entry = entry.ok_or(Errno::EFAULT)?;
    // SAFETY: the memory is part of an allocation that this process has lent to an operation of its
    // own, or registered; the operation that copies to or from it is the one that it was lent to.
    unsafe { part(entry.kind, entry.allocation, location.offset, len) }
}

/// # Safety
/// The allocation is memory of that kind, and valid for `'m`.
unsafe fn part<'m>(kind: Kind, allocation: Allocation, offset: u64, len: usize) -> Result<Iov<'m>> {
    let offset = usize::try_from(offset).map_err(|_| Errno::EFAULT)?;
    let end = offset.checked_add(len).ok_or(Errno::EFAULT)?;
    if end > allocation.len {
        return Err(Errno::EFAULT);
    }
    let base = std::ptr::with_exposed_provenance_mut::<u8>(allocation.base);
    // SAFETY: the caller guarantees that the allocation is valid, and the part is within it.
    Ok(unsafe { Iov::from_raw(base.wrapping_add(offset), len).of_kind(kind) })
}

/// Another process's allocation.
#[derive(Clone)]
pub struct Imported(Arc<dyn Opened>);

impl Imported {
    /// Opens it. The driver is not called with a lock held.
    ///
    /// # Errors
    /// `-FI_EFAULT` if the driver cannot open it in this process.
    pub fn open(handle: &Handle) -> Result<Imported> {
        let interfaces = interfaces().ok_or(Errno::EFAULT)?;
        let opened = interfaces.open(handle).map_err(|_| Errno::EFAULT)?;
        Ok(Imported(Arc::from(opened)))
    }

    /// Returns a part of the memory.
    ///
    /// # Errors
    /// `-FI_EFAULT` if it is not within the allocation.
    pub fn part(&self, location: Location, len: usize) -> Result<Iov<'_>> {
        // SAFETY: the allocation stays open while it is borrowed, and no reference to its bytes is made:
        // a device copies them, as it would while the other process writes to them.
        unsafe { part(self.0.kind(), self.0.allocation(), location.offset, len) }
    }

    /// Whether both are the same opened allocation.
    pub fn is(&self, other: &Imported) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a reference that does not keep it open.
    pub fn downgrade(&self) -> std::sync::Weak<dyn Opened> {
        Arc::downgrade(&self.0)
    }

    /// Returns the allocation of such a reference, while it is open.
    pub fn upgrade(weak: &std::sync::Weak<dyn Opened>) -> Option<Imported> {
        weak.upgrade().map(Imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_no_address_and_moves_like_one() {
        let location = Location {
            card: 7,
            offset: 100,
        };
        let addr = location.write();
        assert!(Location::is_one(addr) && !Location::is_one(0x7fff_ffff_f000));
        let moved = Location::read(addr + 28).unwrap();
        assert_eq!((moved.card, moved.offset()), (7, 128));
        assert_eq!(moved.card(0x1000), 0x1000 + 7 * CARD as u64);
        for none in [0, MARK, MARK | 77, u64::MAX, 0x1000] {
            assert_eq!(Location::read(none), None);
        }
    }

    #[test]
    fn a_card_says_what_was_written_on_it_until_it_is_withdrawn() {
        let card = Card([const { AtomicU64::new(0) }; WORDS]);
        let handle = Handle {
            interface: 1,
            device: std::array::from_fn(|at| at as u8),
            handle: std::array::from_fn(|at| 100 + at as u8),
        };
        let bytes = || {
            let words = card.0.each_ref().map(|word| word.load(Ordering::Relaxed));
            let mut bytes = [0; CARD];
            bytes.copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
            bytes
        };
        assert_eq!(Reading::decode(&bytes()), None);
        card.fill(99, &handle);
        let reading = Reading::decode(&bytes()).unwrap();
        assert_eq!((reading.number, reading.handle), (99, handle));
        card.withdraw();
        assert_eq!(Reading::decode(&bytes()), None);
    }
}
