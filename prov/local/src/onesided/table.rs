//! The owner's side: the table of a domain's regions, and the initiators that may use it.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prov_base::shared_words::{AtomicU64, Ordering};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_util::mr::publish::{Published, PublishedIndex, Publisher};

use super::protocol::{Entry, Watched};
use crate::channel::FlightWords;
use crate::process::{Itself, Memory};
use crate::segment::Segment;

/// Value of the first word of a table: its identification and version.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"fi_mrs\x01\x00");
/// Number of entries of a table, which take 256 KiB with lines of 64 bytes. For regions without an entry peers ask the
/// owner.
pub(super) const ENTRIES: usize = 4096;
/// Number of consecutive entries in which a key may be: the number of cache lines that an initiator
/// reads if it finds nothing.
pub(super) const PROBES: usize = 16;
/// Offset of the entries.
const ENTRIES_AT: usize = 4096;
/// Number of bytes of a table.
pub(super) const TABLE: usize = ENTRIES_AT + ENTRIES * size_of::<Entry>();

const _: () = assert!(ENTRIES_AT.is_multiple_of(align_of::<Entry>()));

/// Number of tests of a flight word without yielding the processor: about the duration of a short
/// copy.
const SPINS: u32 = 256;
/// Number of tests, including the former, before the thread sleeps; it yields the processor between
/// them.
const YIELDS: u32 = SPINS + 64;
/// Time between tests after that.
const NAP: Duration = Duration::from_micros(50);
/// Time after which the log says for which process it waits.
const NOTICE: Duration = Duration::from_secs(1);

/// A table in a segment.
pub(super) struct Sheet {
    /// Keeps the memory.
    segment: Segment,
}

impl Sheet {
    /// Wraps a segment of [`TABLE`] bytes.
    pub(super) fn new(segment: Segment) -> Option<Sheet> {
        (segment.len() == TABLE).then_some(Sheet { segment })
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        debug_assert!(number < ENTRIES_AT / size_of::<u64>());
        // SAFETY: the word is one of those before the entries, so it is inside the segment and
        // aligned; the segment lives as long as the returned reference, and all processes access
        // the word atomically.
        unsafe { AtomicU64::from_ptr(self.segment.base().add(number * 8).cast().as_ptr()) }
    }

    /// [`MAGIC`].
    pub(super) fn magic(&self) -> &AtomicU64 {
        self.word(0)
    }

    /// Returns the number of regions without an entry, for which peers have to ask the owner.
    pub(super) fn unlisted(&self) -> &AtomicU64 {
        self.word(1)
    }

    /// Returns the kinds of accesses that are counted, for all regions.
    pub(super) fn counted(&self) -> &AtomicU64 {
        self.word(2)
    }

    fn entries(&self) -> &[Entry] {
        let first: NonNull<Entry> =
            // SAFETY: the segment has `TABLE` bytes, so the offset is inside it.
            unsafe { self.segment.base().add(ENTRIES_AT) }.cast();
        // SAFETY: the pointer is aligned, since the mapping and `ENTRIES_AT` are aligned as pages
        // are; `ENTRIES` entries follow it inside the segment, which lives as long as the returned
        // reference. All fields of an entry are atomic words, for which every bit pattern is valid.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), ENTRIES) }
    }

    /// Returns the entries in which a key may be, with their indexes.
    pub(super) fn probe(&self, key: u64) -> impl Iterator<Item = (u32, &Entry)> {
        let entries = self.entries();
        // Multiplication by 2^64 divided by the golden ratio separates neighbouring keys in the
        // upper bits.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> (u64::BITS - ENTRIES.ilog2())) as usize;
        (0..PROBES).filter_map(move |step| {
            let place = (first + step) % ENTRIES;
            Some((place as u32, entries.get(place)?))
        })
    }

    fn entry(&self, place: PublishedIndex) -> Option<&Entry> {
        self.entries().get(place.0 as usize)
    }
}

/// The regions of a domain, for the initiators of its links.
pub struct RegionTable {
    /// The log target.
    target: &'static str,
    /// A forked child writes nothing into the inherited segment.
    process: Process,
    sheet: Sheet,
    /// The segment's descriptor, with which initiators can map it read-only.
    fd: OwnedFd,
    taken: Mutex<Taken>,
    initiators: Mutex<Vec<Arc<Initiator>>>,
}

/// The entries that are in use; their contents are not read back.
struct Taken {
    entries: Box<[bool]>,
    unlisted: u64,
}

/// An initiator that may be in flight.
struct Initiator {
    words: Watched<FlightWords>,
    process: Itself,
    /// The process's id, for the log.
    pid: u32,
    /// Shows that another program is executed in the process, so that no thread of the initiator is
    /// left. `None` if the system does not permit this process to open the memory.
    memory: Option<Memory>,
    /// Whether its link has ended.
    has_ended: std::sync::atomic::AtomicBool,
}

impl Initiator {
    /// Whether it need not be watched any longer.
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) && (self.words.is_idle() || self.is_gone())
    }

    fn is_gone(&self) -> bool {
        let memory = self.memory.as_ref();
        self.process.has_ended() == Ok(true) || memory.is_some_and(Memory::is_gone)
    }

    /// Waits for a flight in progress, unless the process is gone. `target` is the log target.
    fn wait(&self, target: &'static str) {
        let mut notice = None;
        self.words.wait(|turn| match turn {
            0..SPINS => {
                std::hint::spin_loop();
                true
            }
            SPINS..YIELDS => {
                std::thread::yield_now();
                true
            }
            YIELDS => {
                notice = Some(Instant::now() + NOTICE);
                !self.is_gone()
            }
            _ => {
                std::thread::sleep(NAP);
                let is_gone = self.is_gone();
                if !is_gone && notice.take_if(|at| Instant::now() >= *at).is_some() {
                    log::warn!(
                        target: target,
                        "closing a region waits for process {}, which is in the middle of a copy \
                         to or from it: has it been stopped?",
                        self.pid
                    );
                }
                !is_gone
            }
        });
    }
}

/// Watches an initiator until this is dropped: it may begin no more flights then.
pub struct Watching {
    table: Arc<RegionTable>,
    initiator: Arc<Initiator>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if !self.table.process.is_current() {
            // The parent still uses it.
            return;
        }
        self.initiator.words.revoke();
        self.initiator.has_ended.store(true, Ordering::Release);
        let mut initiators = self.table.initiators();
        initiators.retain(|other| !Arc::ptr_eq(other, &self.initiator) || !other.is_over());
    }
}

impl RegionTable {
    /// Creates an empty table. `target` is the log target.
    ///
    /// # Errors
    /// Those of [`Segment::create_for_readers`].
    pub fn new(target: &'static str) -> Result<Arc<RegionTable>> {
        let process = Process::current();
        let (segment, fd) = Segment::create_for_readers(TABLE)?;
        let sheet = Sheet { segment };
        sheet.magic().store(MAGIC, Ordering::Relaxed);
        Ok(Arc::new(RegionTable {
            target,
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

    /// As [`RegionTable::new`]; if that fails, logs the reason at `target`, and peers ask for each
    /// access.
    pub fn for_domain(target: &'static str) -> Option<Arc<RegionTable>> {
        let table = RegionTable::new(target);
        let table = table.inspect_err(|error| {
            log::info!(target: target, "peers cannot access memory by themselves: {error}");
        });
        table.ok()
    }

    /// Permits the process `pid` at the other end of a link to use the table, with its words of the
    /// channel; it needs [`RegionTable::descriptor`] for that.
    ///
    /// # Errors
    /// If the system cannot report the end of that process (pidfd_open(2)): closing a region might
    /// then have to wait for it for ever.
    pub fn watch(self: &Arc<Self>, words: FlightWords, pid: u32) -> Result<Watching> {
        let id = pid.try_into().map_err(|_| Errno::EINVAL)?;
        let process = Itself::of(id)?;
        let initiator = Arc::new(Initiator {
            words: Watched::new(words),
            memory: Memory::of_program(&process, id).ok(),
            process,
            pid,
            has_ended: false.into(),
        });
        let mut initiators = self.initiators();
        initiators.retain(|other| !other.is_over());
        initiators.push(initiator.clone());
        bounded!(initiators, PEERS);
        Ok(Watching {
            table: self.clone(),
            initiator,
        })
    }

    /// Returns the segment's descriptor, for [`Window::attach`](super::window::Window::attach).
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

    /// Waits for the flights in progress.
    fn wait_for_flights(&self) {
        // The entries that they have seen were freed before.
        std::sync::atomic::fence(Ordering::SeqCst);
        let in_flight: Vec<Arc<Initiator>> = {
            let initiators = self.initiators();
            let in_flight = initiators.iter().filter(|one| !one.words.is_idle());
            in_flight.cloned().collect()
        };
        for initiator in in_flight {
            initiator.wait(self.target);
        }
    }
}

impl Publisher for RegionTable {
    fn publish(&self, region: Option<&Published>) -> Option<PublishedIndex> {
        if !self.process.is_noted() {
            return None;
        }
        let mut taken = self.taken();
        if let Some(region) = region {
            for (place, entry) in self.sheet.probe(region.key) {
                if let Some(is_taken @ false) = taken.entries.get_mut(place as usize) {
                    *is_taken = true;
                    entry.fill(region);
                    return Some(PublishedIndex(place));
                }
            }
        }
        taken.unlisted += 1;
        let unlisted = taken.unlisted;
        self.sheet.unlisted().store(unlisted, Ordering::Release);
        None
    }

    fn count(&self, place: PublishedIndex, counted: u64) {
        if self.process.is_noted()
            && let Some(entry) = self.sheet.entry(place)
        {
            entry.count(counted);
        }
    }

    fn withdraw(&self, place: Option<PublishedIndex>) {
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
