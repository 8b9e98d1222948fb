//! The owner's side: the table of a domain's regions, and who may look at it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::sync::atomic::{AtomicU64, Ordering};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_util::mr::publish::{Place, Published, Publisher};

use super::protocol::{Entry, Watched};
use crate::channel::FlightWords;
use crate::process::{Itself, Memory};
use crate::segment::Segment;

/// What the first word of a table says: that it is one, and which version.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"fi_mrs\x01\x00");
/// Entries of a table: 256 KiB. Peers ask the owner for the regions that find no place.
pub(super) const ENTRIES: usize = 4096;
/// Entries in which a key may be, one after another: as many cache lines does an
/// initiator look at that finds nothing.
pub(super) const PROBES: usize = 16;
/// Where the entries begin.
const ENTRIES_AT: usize = 4096;
/// Bytes of a table.
pub(super) const TABLE: usize = ENTRIES_AT + ENTRIES * size_of::<Entry>();

/// Looks at a flight word without giving the processor away: as long as a short copy
/// takes.
const SPINS: u32 = 256;
/// Then, looks between which it is given away.
const YIELDS: u32 = SPINS + 64;
/// Then, the time between looks.
const NAP: Duration = Duration::from_micros(50);

/// A table as it stands in a segment.
pub(super) struct Sheet {
    /// Keeps the memory.
    segment: Segment,
}

impl Sheet {
    /// In a segment of [`TABLE`] bytes.
    pub(super) fn new(segment: Segment) -> Option<Sheet> {
        (segment.len() == TABLE).then_some(Sheet { segment })
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        debug_assert!(number < ENTRIES_AT / size_of::<u64>());
        // SAFETY: one of the words before the entries, aligned, and mapped as long as the
        // segment.
        unsafe { AtomicU64::from_ptr(self.segment.base().add(number * 8).cast().as_ptr()) }
    }

    /// [`MAGIC`].
    pub(super) fn magic(&self) -> &AtomicU64 {
        self.word(0)
    }

    /// Regions without an entry, of which peers have to ask the owner.
    pub(super) fn unlisted(&self) -> &AtomicU64 {
        self.word(1)
    }

    /// Accesses that are counted, whichever region they are to.
    pub(super) fn counted(&self) -> &AtomicU64 {
        self.word(2)
    }

    fn entries(&self) -> &[Entry] {
        let first: NonNull<Entry> =
            // SAFETY: inside the segment, and aligned as pages are.
            unsafe { self.segment.base().add(ENTRIES_AT) }.cast();
        // SAFETY: so many entries are in the segment, and mapped as long as it. All their
        // fields are atomic words, in which any bits are a value.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), ENTRIES) }
    }

    /// The entries in which a key may be, with their places.
    pub(super) fn probe(&self, key: u64) -> impl Iterator<Item = (u32, &Entry)> {
        let entries = self.entries();
        // Multiplied by 2^64 divided by the golden ratio, neighbours are far apart in the
        // upper bits.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> (u64::BITS - ENTRIES.ilog2())) as usize;
        (0..PROBES).filter_map(move |step| {
            let place = (first + step) % ENTRIES;
            Some((place as u32, entries.get(place)?))
        })
    }

    fn entry(&self, place: Place) -> Option<&Entry> {
        self.entries().get(place.0 as usize)
    }
}

/// The regions of a domain, for the initiators at its links.
pub struct RegionTable {
    /// A forked child writes nothing into what it inherited.
    process: Process,
    sheet: Sheet,
    /// The segment's, which initiators can map to read.
    fd: OwnedFd,
    taken: Mutex<Taken>,
    initiators: Mutex<Vec<Arc<Initiator>>>,
}

/// Which entries are in use: what stands in them is not asked.
struct Taken {
    entries: Box<[bool]>,
    unlisted: u64,
}

/// Who may be in flight.
struct Initiator {
    words: Watched<FlightWords>,
    process: Itself,
    /// By which it is seen that another program has begun in the process: then no thread of
    /// the initiator's is left. None where the system does not let this process.
    memory: Option<Memory>,
    /// Its link has ended.
    has_ended: std::sync::atomic::AtomicBool,
}

impl Initiator {
    /// Whether it is not to be looked at any more.
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) && (self.words.is_idle() || self.is_gone())
    }

    fn is_gone(&self) -> bool {
        let memory = self.memory.as_ref();
        self.process.has_ended() == Ok(true) || memory.is_some_and(Memory::is_gone)
    }

    /// Waits for a flight that is under way, unless the process is gone.
    fn wait(&self) {
        self.words.wait(|turn| match turn {
            0..SPINS => {
                std::hint::spin_loop();
                true
            }
            SPINS..YIELDS => {
                std::thread::yield_now();
                true
            }
            _ => {
                std::thread::sleep(NAP);
                !self.is_gone()
            }
        });
    }
}

/// An initiator is watched until this is dropped: it may begin no flight then.
pub struct Watching {
    table: Arc<RegionTable>,
    initiator: Arc<Initiator>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if !self.table.process.is_current() {
            // The parent goes on with it.
            return;
        }
        self.initiator.words.revoke();
        self.initiator.has_ended.store(true, Ordering::Release);
        let mut initiators = self.table.initiators();
        initiators.retain(|other| !Arc::ptr_eq(other, &self.initiator) || !other.is_over());
    }
}

impl RegionTable {
    /// An empty one.
    ///
    /// # Errors
    /// Those of [`Segment::create_for_readers`].
    pub fn new() -> Result<Arc<RegionTable>> {
        let process = Process::current();
        let (segment, fd) = Segment::create_for_readers(TABLE)?;
        let sheet = Sheet { segment };
        sheet.magic().store(MAGIC, Ordering::Relaxed);
        Ok(Arc::new(RegionTable {
            process,
            sheet,
            fd,
            taken: Mutex::new(Taken {
                entries: vec![false; ENTRIES].into_boxed_slice(),
                unlisted: 0,
            }),
            initiators: Mutex::default(),
        }))
    }

    /// [`RegionTable::new`]; where that is not possible, the log says why, at `target`, and
    /// peers ask for each access.
    pub fn for_domain(target: &'static str) -> Option<Arc<RegionTable>> {
        let table = RegionTable::new();
        let table = table.inspect_err(|error| {
            log::info!(target: target, "peers cannot access memory by themselves: {error}");
        });
        table.ok()
    }

    /// Lets the process `pid` at the other end of a link look at the table, with these
    /// words of its: what it needs for that is [`RegionTable::descriptor`].
    ///
    /// # Errors
    /// Where the system does not say when that process ends (pidfd_open(2)): closing a
    /// region could have to wait for it for ever.
    pub fn watch(self: &Arc<Self>, words: FlightWords, pid: u32) -> Result<Watching> {
        let pid = pid.try_into().map_err(|_| Errno::EINVAL)?;
        let process = Itself::of(pid)?;
        let initiator = Arc::new(Initiator {
            words: Watched::new(words),
            memory: Memory::of_program(&process, pid).ok(),
            process,
            has_ended: false.into(),
        });
        let mut initiators = self.initiators();
        initiators.retain(|other| !other.is_over());
        initiators.push(initiator.clone());
        Ok(Watching {
            table: self.clone(),
            initiator,
        })
    }

    /// The segment, for [`Window::attach`](super::window::Window::attach).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn initiators(&self) -> MutexGuard<'_, Vec<Arc<Initiator>>> {
        self.initiators
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the flights that are under way.
    fn wait_for_flights(&self) {
        // What they have seen was free before.
        std::sync::atomic::fence(Ordering::SeqCst);
        let in_flight: Vec<Arc<Initiator>> = {
            let initiators = self.initiators();
            let in_flight = initiators.iter().filter(|one| !one.words.is_idle());
            in_flight.cloned().collect()
        };
        in_flight.iter().for_each(|initiator| initiator.wait());
    }
}

impl Publisher for RegionTable {
    fn publish(&self, region: Option<&Published>) -> Option<Place> {
        if !self.process.is_noted() {
            return None;
        }
        let mut taken = self.taken();
        if let Some(region) = region {
            for (place, entry) in self.sheet.probe(region.key) {
                if let Some(is_taken @ false) = taken.entries.get_mut(place as usize) {
                    *is_taken = true;
                    entry.fill(region);
                    return Some(Place(place));
                }
            }
        }
        taken.unlisted += 1;
        let unlisted = taken.unlisted;
        self.sheet.unlisted().store(unlisted, Ordering::Release);
        None
    }

    fn count(&self, place: Place, counted: u64) {
        if self.process.is_noted()
            && let Some(entry) = self.sheet.entry(place)
        {
            entry.count(counted);
        }
    }

    fn withdraw(&self, place: Option<Place>) {
        if !self.process.is_noted() {
            return;
        }
        let Some(place) = place else {
            let mut taken = self.taken();
            taken.unlisted = taken.unlisted.saturating_sub(1);
            let unlisted = taken.unlisted;
            self.sheet.unlisted().store(unlisted, Ordering::Release);
            return;
        };
        if let Some(entry) = self.sheet.entry(place) {
            entry.free();
        }
        self.wait_for_flights();
        if let Some(is_taken) = self.taken().entries.get_mut(place.0 as usize) {
            *is_taken = false;
        }
    }

    fn count_all(&self, counted: u64) {
        if self.process.is_noted() {
            self.sheet.counted().fetch_or(counted, Ordering::Relaxed);
        }
    }
}
