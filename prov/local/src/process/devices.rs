//! The memory of devices that another process has allocated, opened by the handles on its cards
//! ([`device_sharing`]).
//!
//! A card is read as all memory of the process is, which the system permits for processes of the
//! same user only. Whatever is on it, the driver decides what is opened, and says how long it is.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prov_base::buffer::Iov;
use prov_base::device_memory::handles::{Handle, Opened};
use prov_base::device_sharing::{self, CARD, Imported, Location, Reading};
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{OtherIov, OtherPiece, Token};

use super::OtherProcess;

/// Allocations of one peer that are kept open, or known not to be openable: beyond that the one that
/// was used least recently is dropped.
const KEPT: usize = 64;

/// The allocations of a peer that are open, for one link and whoever copies for it. They are closed
/// with the last one that has them.
#[derive(Clone, Default)]
pub(super) struct Devices(Arc<Mutex<Cache>>);

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Devices")
    }
}

#[derive(Default)]
struct Cache {
    /// The address of the peer's cards.
    table: Option<u64>,
    /// The most recently used one is the last.
    open: Vec<Known>,
}

struct Known {
    location: Location,
    reading: Reading,
    /// `None` if the driver could not open it.
    imported: Option<Imported>,
}

/// All allocations that are open in this process: one that several links use is opened once.
static OPEN: Mutex<Vec<(Reading, Weak<dyn Opened>)>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens an allocation, unless another link has done so.
fn open(reading: &Reading) -> Option<Imported> {
    let known = |open: &mut Vec<(Reading, Weak<dyn Opened>)>| {
        open.retain(|(_, opened)| opened.strong_count() != 0);
        let mut same = open.iter().filter(|(other, _)| other == reading);
        same.find_map(|(_, opened)| Imported::upgrade(opened))
    };
    if let Some(imported) = known(&mut locked(&OPEN)) {
        return Some(imported);
    }
    let imported = Imported::open(&reading.handle);
    let imported = imported.inspect_err(|_| refused(&reading.handle)).ok()?;
    let mut all = locked(&OPEN);
    // Another thread may have opened it meanwhile.
    if let Some(imported) = known(&mut all) {
        return Some(imported);
    }
    all.push((*reading, imported.downgrade()));
    Some(imported)
}

#[cold]
fn refused(handle: &Handle) {
    prov_base::warn_again!(
        target: prov_base::logging::UTIL.mr,
        "a peer's memory of a device of interface {} cannot be opened in this process: its data is staged",
        handle.interface
    );
}

/// The direction of a copy.
#[derive(Clone, Copy)]
pub(super) enum Course {
    FromPeer,
    ToPeer,
}

impl OtherProcess {
    /// Copies between a peer's memory of a device, at a location, and memory of this process of the
    /// same length.
    ///
    /// # Errors
    /// `-FI_EFAULT` if it cannot be opened, in which case nothing was copied, `-FI_EIO` if the device
    /// does not copy, `-FI_ESHUTDOWN` if the allocation has ended meanwhile.
    #[cold]
    pub(super) fn copy_of_device(
        &self,
        course: Course,
        piece: &OtherPiece,
        near: &Iov<'_>,
    ) -> Result {
        let location = Location::read(piece.addr).ok_or(Errno::EFAULT)?;
        let table = self.cards()?;
        // Forked processes and copies of this library may have tables at the same address.
        let is_own = self.pid.unsigned_abs() == std::process::id();
        if is_own && table == device_sharing::table_of_this_process() {
            return move_bytes(course, &device_sharing::own(location, near.len())?, near);
        }
        let reading = self.card(table, location).ok_or(Errno::EFAULT)?;
        let imported = self.imported(table, location, &reading);
        let imported = imported.ok_or(Errno::EFAULT)?;
        move_bytes(course, &imported.part(location, near.len())?, near)?;
        match self.card(table, location) == Some(reading) {
            true => Ok(()),
            false => {
                self.forget(&reading);
                Err(Errno::ESHUTDOWN)
            }
        }
    }

    /// Returns the address of the peer's cards.
    fn cards(&self) -> Result<u64> {
        if let Some(table) = locked(&self.devices.0).table {
            return Ok(table);
        }
        let mut bytes = [0; 8];
        self.copy_out(&at(self.seal.cards(), bytes.len()), &mut bytes)?;
        let table = u64::from_ne_bytes(bytes);
        locked(&self.devices.0).table = Some(table);
        Ok(table)
    }

    fn card(&self, table: u64, location: Location) -> Option<Reading> {
        let mut bytes = [0; CARD];
        let card = at(location.card(table), bytes.len());
        self.copy_out(&card, &mut bytes).ok()?;
        Reading::decode(&bytes)
    }

    fn imported(&self, table: u64, location: Location, reading: &Reading) -> Option<Imported> {
        let mut cache = locked(&self.devices.0);
        if let Some(at) = cache
            .open
            .iter()
            .position(|known| known.reading == *reading)
        {
            let known = cache.open.remove(at);
            let imported = known.imported.clone();
            cache.open.push(known);
            return imported;
        }
        drop(cache);
        let imported = open(reading);
        self.prune(table, reading);
        let mut cache = locked(&self.devices.0);
        cache.open.push(Known {
            location,
            reading: *reading,
            imported: imported.clone(),
        });
        imported
    }

    /// Makes room for one more: drops those that have ended, and it, if another thread has entered it.
    fn prune(&self, table: u64, reading: &Reading) {
        let mut open = std::mem::take(&mut locked(&self.devices.0).open);
        open.retain(|known| {
            let lives = self.card(table, known.location) == Some(known.reading);
            lives && known.reading != *reading
        });
        let over = (open.len() + 1).saturating_sub(KEPT);
        open.drain(..over);
        locked(&self.devices.0).open.splice(..0, open);
    }

    /// Closes an allocation that has ended.
    fn forget(&self, reading: &Reading) {
        let mut cache = locked(&self.devices.0);
        let at = cache
            .open
            .iter()
            .position(|known| known.reading == *reading);
        let ended = at.map(|at| cache.open.remove(at));
        drop(cache);
        drop(ended);
    }
}

fn at(addr: u64, len: usize) -> OtherIov {
    let mut list = OtherIov::default();
    list.push(OtherPiece {
        addr,
        len: len as u64,
        seal: None::<Token>,
    });
    list
}

fn move_bytes(course: Course, far: &Iov<'_>, near: &Iov<'_>) -> Result {
    match course {
        Course::FromPeer => far.copy_to(near),
        Course::ToPeer => near.copy_to(far),
    };
    // Those of the other side are noted, too.
    far.take_failure().and(near.take_failure())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use prov_base::buffer::AppIov;
    use prov_base::device_memory::handles::{Allocation, DEVICE, HANDLE};
    use prov_base::device_memory::{Copier, Interfaces, Kind, install};
    use prov_base::process_memory::Seal;

    use super::super::child::Child;
    use super::*;

    /// Bytes of each allocation.
    const LEN: usize = 64;

    /// A device whose memory is this process's. It makes handles of which the first byte is that of the
    /// allocation, and opens those that begin with 1.
    struct Fake {
        allocation: Allocation,
    }

    impl Copier for Fake {
        unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
            // SAFETY: the caller guarantees that both ranges are valid.
            unsafe { std::ptr::copy(from, to, len) };
            Ok(())
        }

        unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
            // SAFETY: the caller guarantees that both ranges are valid.
            unsafe { std::ptr::copy(from, to, len) };
            Ok(())
        }

        unsafe fn copy(&self, _: *const u8, _: *mut u8, _: usize) -> Result {
            Err(Errno::EIO)
        }

        fn allocation(&self, _: usize) -> Option<Allocation> {
            Some(self.allocation)
        }

        fn handle(&self, allocation: Allocation) -> Result<Handle> {
            let mut handle = [0; HANDLE];
            handle[0] = allocation.number as u8;
            Ok(Handle {
                interface: 1,
                device: [7; DEVICE],
                handle,
            })
        }

        fn family(&self) -> Option<u32> {
            None
        }

        fn identity(&self) -> (u32, u64) {
            (1, 0)
        }
    }

    static CLOSED: AtomicUsize = AtomicUsize::new(0);

    /// An allocation that was opened: half as long as the one that its peer has offered.
    struct Short {
        kind: Kind,
        bytes: Box<[u8; LEN / 2]>,
    }

    impl Opened for Short {
        fn kind(&self) -> Kind {
            self.kind
        }

        fn allocation(&self) -> Allocation {
            Allocation {
                base: self.bytes.as_ptr().expose_provenance(),
                len: self.bytes.len(),
                number: 5,
            }
        }
    }

    impl Drop for Short {
        fn drop(&mut self) {
            CLOSED.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Fakes;

    impl Interfaces for Fakes {
        fn kind(&self, _: u32, _: i32, _: usize) -> Result<Kind> {
            Err(Errno::ENOSYS)
        }

        fn owner(&self, _: usize) -> Result<Kind> {
            Ok(Kind::HOST)
        }

        fn has(&self, _: u32) -> bool {
            true
        }

        fn open(&self, handle: &Handle) -> Result<Box<dyn Opened>> {
            let kind = kind(Allocation {
                base: 0,
                len: 0,
                number: 0,
            });
            match (handle.handle[0], handle.device == [7; DEVICE]) {
                (1, true) => Ok(Box::new(Short {
                    kind,
                    bytes: Box::new([9; LEN / 2]),
                })),
                _ => Err(Errno::EINVAL),
            }
        }
    }

    fn kind(allocation: Allocation) -> Kind {
        Kind::new(Arc::new(Fake { allocation })).unwrap()
    }

    #[test]
    fn a_peers_memory_is_what_the_driver_opens_whatever_the_card_says() {
        install(&Fakes);
        let mut memory = [[1u8; LEN], [2; LEN]];
        let offered = [1, 2].map(|number| {
            let base = memory[number - 1].as_mut_ptr().expose_provenance();
            let allocation = Allocation {
                base,
                len: LEN,
                number: number as u64,
            };
            let kind = kind(allocation);
            assert_eq!(device_sharing::export(kind, base + LEN, 1), None);
            device_sharing::export(kind, base + 8, 8).unwrap()
        });
        let seal = Seal::new().unwrap();
        let mut here = [0u8; LEN];
        let bytes = here.as_mut_ptr();
        // SAFETY: the test keeps the bytes, and does not access them otherwise during a copy.
        let near = |len| unsafe { AppIov::from_raw(bytes, len) };
        // In this process nothing is opened.
        let (own, _) = OtherProcess::find(std::process::id(), seal.token()).unwrap();
        assert_eq!(own.read(&at(offered[0], 8), &near(8)), Ok(()));
        assert_eq!(
            own.read(&at(offered[0], LEN), &near(LEN)),
            Err(Errno::EFAULT)
        );
        let child = Child::new(|| {});
        let pid = child.pid().unsigned_abs();
        let (other, _) = OtherProcess::find(pid, seal.token()).unwrap();
        let read = |addr, len| other.read(&at(addr, len), &near(len));
        assert_eq!(read(offered[0], 8), Ok(()));
        // What is beyond the end of the opened one, though not of the offered one.
        assert_eq!(read(offered[0] + 24, 8), Err(Errno::EFAULT));
        // A handle that cannot be opened, cards that are none, and no card.
        for forged in [offered[1], offered[1] + (1 << 48), u64::MAX - 8, 1 << 63] {
            assert_eq!(read(forged, 8), Err(Errno::EFAULT));
        }
        let copy = other.clone();
        drop(other);
        assert_eq!(CLOSED.load(Ordering::Relaxed), 0);
        drop(copy);
        assert_eq!(CLOSED.load(Ordering::Relaxed), 1);
        assert_eq!(here[..9], [9, 9, 9, 9, 9, 9, 9, 9, 0]);
    }
}
