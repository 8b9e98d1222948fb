//! An address table that processes share by name (fi_av(3)).
//!
//! The table is a file in shared memory that is read and written only by system calls, never
//! through a mapping: whatever another process does to the file, including truncating it, a read
//! returns an error or other bytes, which are checked, and cannot fault. This process has its own
//! hash table from addresses to indices, which it extends when the shared table has grown.
//!
//! Two kinds of locks are used, both of which the kernel releases when their holder dies. Every
//! process that has the table open holds a shared `flock`; a process that can make it exclusive is
//! the only one, and may initialise or remove the file. Writers exclude each other by a record
//! lock. A slot is valid once the header includes it, and the header is written after the slot, so
//! that a writer that dies in between has written nothing. A writer that is stopped while it holds
//! the record lock delays others by at most [`PATIENCE`](super::write_lock::PATIENCE); then their
//! change fails with `-FI_EAGAIN`.
//!
//! Every user can write to `/dev/shm`, and the name is predictable: a file is used only if it is a
//! regular file of the effective user that other users cannot write to
//! ([`own_file`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, TryLockError};
use std::hash::BuildHasher;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, MutexGuard};

use super::map_array::MapArray;
use super::write_lock::WriteLock;
use prov_base::errno::{Errno, Result};
use prov_base::{file_limit, own_file};

const MAGIC: u64 = u64::from_ne_bytes(*b"ofi-av\0\x02");
/// Limit of the slots of a table: a header with a larger number must not make this process read and
/// store slots without bound.
const CAPACITY: usize = 1 << 24;
/// File offset of the first slot: the page behind the header.
const FIRST_SLOT: u64 = 4096;
/// Bytes per read.
const CHUNK: usize = 64 * 1024;

/// The name of a table, and how to open it.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// The name that the processes agreed on.
    pub name: &'a str,
    /// The domain whose address vectors are meant.
    pub domain: &'a str,
    /// The table must exist, and this process only reads it (`FI_READ`).
    pub read_only: bool,
    /// Expected number of addresses, for the array at `map_addr`.
    pub count: usize,
}

/// The records in the slots of a table. They have one size, and their first byte is 0 exactly in a
/// free slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// Size of a record in bytes.
    pub size: usize,
    /// The format of the addresses: `FI_SOCKADDR_*`, `FI_ADDR_*`.
    pub format: u32,
    /// The bytes of a record that are not part of a peer's identity.
    pub ignored: Range<usize>,
}

/// A shared table of records of one kind.
pub struct Shared {
    records: Records,
    file: Arc<File>,
    path: PathBuf,
    read_only: bool,
    /// The process that opened it.
    process: u32,
    map: Option<MapArray>,
    local: Mutex<Local>,
}

/// A table without this process's index of it, for reading its state.
pub struct HeaderView {
    records: Records,
    file: Arc<File>,
}

impl HeaderView {
    /// Returns the current state of the table.
    ///
    /// # Errors
    /// Those of the system, `-FI_EIO` if the file is not a valid table.
    pub fn state(&self) -> Result<State> {
        Header::read(&self.file, &self.records).map(State)
    }
}

/// The state of a table: equal states mean that nothing has changed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct State(Header);

impl State {
    /// Returns whether the slots of the earlier state are unchanged.
    pub fn has_only_grown_since(&self, before: &State) -> bool {
        self.0.epoch == before.0.epoch && self.0.slots >= before.0.slots
    }
}

/// This process's index of the table.
#[derive(Default)]
struct Local {
    hasher: DefaultHashBuilder,
    /// The used slots: index and hash of the address.
    index: HashTable<(u32, u32)>,
    free: BinaryHeap<Reverse<u32>>,
    /// The state of the table that `index` and `free` reflect.
    seen: Header,
}

/// The header of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    /// Number of slots, used and free.
    slots: u64,
    /// Counts changes of slots below `slots`.
    epoch: u64,
}

impl Header {
    const SIZE: usize = 40;

    fn read(file: &File, records: &Records) -> Result<Header> {
        let mut bytes = [0; Header::SIZE];
        file.read_exact_at(&mut bytes, 0)?;
        Header::decode(&bytes, records).ok_or(Errno::EIO)
    }

    fn encode(self, records: &Records) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(records.size as u64).to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.slots.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_ne_bytes());
        bytes[32..40].copy_from_slice(&u64::from(records.format).to_ne_bytes());
        bytes
    }

    /// Returns `None` if the bytes are not the header of such a table.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offsets are constants within the header"
    )]
    fn decode(bytes: &[u8; Self::SIZE], records: &Records) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let kind = (word(8), word(32));
        let expected = (records.size as u64, u64::from(records.format));
        (word(0) == MAGIC && kind == expected).then(|| Header {
            slots: word(16).min(CAPACITY as u64),
            epoch: word(24),
        })
    }
}

impl Shared {
    /// Opens the table, creating it if necessary.
    ///
    /// # Errors `-FI_ENOENT` for a table that must exist and does not, `-FI_EINVAL` for one of
    /// another kind, `-FI_EACCES` for a file of another user.
    pub fn open(name: &Name<'_>, records: Records) -> Result<Self> {
        let path = path_of(name)?;
        // A round fails because another process has opened or closed the table in the meantime,
        // which ends after a few rounds.
        for round in 0..200 {
            if round > 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if let Some(file) = Self::attach(&path, name, &records)? {
                return Ok(Shared {
                    map: MapArray::open(&map_path(&path), name.read_only),
                    file: Arc::new(file),
                    path,
                    read_only: name.read_only,
                    process: std::process::id(),
                    local: Mutex::default(),
                    records,
                });
            }
        }
        Err(Errno::EBUSY)
    }

    /// One attempt to open the file; `None` if another process has interfered.
    fn attach(path: &Path, name: &Name<'_>, records: &Records) -> Result<Option<File>> {
        let file = own_file::open(path, name.read_only, !name.read_only)?;
        let alone = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error.into()),
        };
        if !is_at(&file, path)? {
            return Ok(None);
        }
        if alone && !name.read_only {
            // The file is new, or was left behind by processes that were killed.
            file_limit::set_len(&file, 0)?;
            file_limit::set_len(&file, FIRST_SLOT)?;
            MapArray::create(&map_path(path), name.count)?;
            file_limit::write_all_at(&file, &Header::default().encode(records), 0)?;
        }
        // A process with the exclusive lock is creating or removing the table, or was stopped while
        // doing so: this one does not wait in the kernel.
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        if !is_at(&file, path)? {
            return Ok(None);
        }
        let mut bytes = [0; Header::SIZE];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) if Header::decode(&bytes, records).is_some() => Ok(Some(file)),
            Ok(()) if bytes != [0; Header::SIZE] => {
                log::warn!(
                    target: prov_base::logging::UTIL.av,
                    "{} is no address table of this kind",
                    path.display()
                );
                Err(Errno::EINVAL)
            }
            // Its creator has not written the header, or has died before.
            Ok(()) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the table for reading its state.
    pub fn header_view(&self) -> HeaderView {
        HeaderView {
            records: self.records.clone(),
            file: self.file.clone(),
        }
    }

    /// Returns the address of an array whose entry `i` is the `fi_addr_t` of the `i`th slot; 0 if
    /// it could not be mapped.
    pub fn map_addr(&self) -> usize {
        self.map.as_ref().map_or(0, MapArray::address)
    }

    /// Returns the record at `index`; `None` for a free slot, beyond the end, and after a read
    /// error.
    pub fn get(&self, index: u32) -> Option<Vec<u8>> {
        if u64::from(index) >= self.header().ok()?.slots {
            return None;
        }
        self.read_slot(index)
    }

    fn read_slot(&self, index: u32) -> Option<Vec<u8>> {
        let mut record = vec![0; self.records.size];
        self.file
            .read_exact_at(&mut record, self.offset(index.into()))
            .ok()?;
        is_used(&record).then_some(record)
    }

    fn offset(&self, slots: u64) -> u64 {
        FIRST_SLOT + slots * self.records.size as u64
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        let mut local = self.local();
        match self.catch_up(&mut local) {
            Ok(()) => local.index.len(),
            Err(_) => 0,
        }
    }

    /// Returns the index of the slot that holds the same peer as `record`.
    pub fn find(&self, record: &[u8]) -> Option<u32> {
        let mut local = self.local();
        self.catch_up(&mut local).ok()?;
        self.find_known(&local, record, &[])
    }

    /// Like `find`, where `written` are the new records beyond the slots that `local` reflects.
    fn find_known(&self, local: &Local, record: &[u8], written: &[Vec<u8>]) -> Option<u32> {
        let (short, hash) = local.hash(&self.records, record);
        local
            .index
            .find(hash, |&(index, other)| {
                other == short
                    && match u64::from(index).checked_sub(local.seen.slots) {
                        Some(at) => written
                            .get(at as usize)
                            .is_some_and(|known| self.records.same(known, record)),
                        None => self
                            .read_slot(index)
                            .is_some_and(|known| self.records.same(&known, record)),
                    }
            })
            .map(|&(index, _)| index)
    }

    /// Inserts addresses and reports the index of each: that of a known address, or the lowest free
    /// one.
    ///
    /// # Errors `-FI_EACCES` for a table that is open for reading only; for a single address
    /// `-FI_ENOMEM` if the table is full.
    pub fn insert(
        &self,
        records: impl Iterator<Item = Result<Vec<u8>>>,
        mut report: impl FnMut(Result<u32>),
    ) -> Result {
        if self.read_only {
            return Err(Errno::EACCES);
        }
        let mut local = self.local();
        let _writer = WriteLock::take(&self.file)?;
        self.catch_up(&mut local)?;
        let mut header = local.seen;
        let mut written = Vec::new();
        let mut outcomes = Vec::new();
        for record in records {
            let outcome = record.and_then(|record| {
                if let Some(index) = self.find_known(&local, &record, &written) {
                    return Ok(index);
                }
                if let Some(Reverse(index)) = local.free.pop() {
                    self.write_slot(index, &record)?;
                    header.epoch = header.epoch.wrapping_add(1);
                    local.note(&self.records, index, &record);
                    return Ok(index);
                }
                let index = local.seen.slots + written.len() as u64;
                if index >= CAPACITY as u64 {
                    return Err(Errno::ENOMEM);
                }
                local.note(&self.records, index as u32, &record);
                written.push(record);
                Ok(index as u32)
            });
            outcomes.push(outcome);
        }
        if let Err(error) = self.append(&mut header, &written) {
            // The appended slots are not valid; the index is rebuilt from the table.
            *local = Local::default();
            return Err(error);
        }
        local.seen = header;
        outcomes.into_iter().for_each(&mut report);
        Ok(())
    }

    /// Writes new slots, then the header that makes them valid.
    fn append(&self, header: &mut Header, records: &[Vec<u8>]) -> Result {
        let first = header.slots;
        if !records.is_empty() {
            file_limit::write_all_at(&self.file, &records.concat(), self.offset(first))?;
            header.slots += records.len() as u64;
            if let Some(map) = &self.map {
                map.fill(first, header.slots)?;
            }
        }
        file_limit::write_all_at(&self.file, &header.encode(&self.records), 0)?;
        Ok(())
    }

    fn write_slot(&self, index: u32, record: &[u8]) -> Result {
        file_limit::write_all_at(&self.file, record, self.offset(index.into()))?;
        Ok(())
    }

    /// Frees a slot; `-FI_EINVAL` if it holds no address.
    pub fn remove(&self, index: u32) -> Result {
        if self.read_only {
            return Err(Errno::EACCES);
        }
        let mut local = self.local();
        let _writer = WriteLock::take(&self.file)?;
        self.catch_up(&mut local)?;
        if u64::from(index) >= local.seen.slots {
            return Err(Errno::EINVAL);
        }
        let record = self.read_slot(index).ok_or(Errno::EINVAL)?;
        self.write_slot(index, &vec![0; self.records.size])?;
        let mut header = local.seen;
        header.epoch = header.epoch.wrapping_add(1);
        self.append(&mut header, &[])?;

        let (_, hash) = local.hash(&self.records, &record);
        if let Ok(found) = local.index.find_entry(hash, |&(other, _)| other == index) {
            found.remove();
        }
        local.free.push(Reverse(index));
        local.seen = header;
        Ok(())
    }

    fn header(&self) -> Result<Header> {
        Header::read(&self.file, &self.records)
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock()
    }

    /// Updates the index with changes of other processes.
    #[allow(clippy::indexing_slicing, reason = "limited to the bytes")]
    fn catch_up(&self, local: &mut Local) -> Result {
        let now = self.header()?;
        if now == local.seen {
            return Ok(());
        }
        if now.epoch != local.seen.epoch || now.slots < local.seen.slots {
            *local = Local::default();
        }
        let mut next = local.seen.slots;
        let size = self.records.size;
        let mut bytes = vec![0; (CHUNK / size).max(1) * size];
        while next < now.slots {
            let wanted = (now.slots - next).min((bytes.len() / size) as u64) as usize;
            let bytes = &mut bytes[..wanted * size];
            // Reading ends with an error at slots that the header includes and the file does not.
            self.file.read_exact_at(bytes, self.offset(next))?;
            for record in bytes.chunks_exact(size) {
                if is_used(record) {
                    local.note(&self.records, next as u32, record);
                } else {
                    local.free.push(Reverse(next as u32));
                }
                next += 1;
            }
        }
        local.seen = now;
        Ok(())
    }
}

impl Local {
    /// Records that the slot at `index` is used.
    fn note(&mut self, records: &Records, index: u32, record: &[u8]) {
        let (short, hash) = self.hash(records, record);
        self.index
            .insert_unique(hash, (index, short), |&(_, short)| widen(short));
    }

    fn hash(&self, records: &Records, record: &[u8]) -> (u32, u64) {
        let short = self.hasher.hash_one(records.identity(record)) as u32;
        (short, widen(short))
    }
}

impl Records {
    /// Returns the bytes that identify a peer.
    fn identity<'a>(&self, record: &'a [u8]) -> [&'a [u8]; 2] {
        let Range { start, end } = self.ignored;
        [
            record.get(..start).unwrap_or(record),
            record.get(end..).unwrap_or_default(),
        ]
    }

    fn same(&self, a: &[u8], b: &[u8]) -> bool {
        self.identity(a) == self.identity(b)
    }
}

/// Returns whether a record belongs to a used slot.
fn is_used(record: &[u8]) -> bool {
    record.first().is_some_and(|&first| first != 0)
}

/// Extends a stored half of a hash to a whole one. The hash table uses the low bits and the highest
/// ones.
fn widen(short: u32) -> u64 {
    u64::from(short) << 32 | u64::from(short)
}

/// Returns the path of the table's file: characters other than letters, digits, `_` and `-` are
/// written as `%xx`.
fn path_of(name: &Name<'_>) -> Result<PathBuf> {
    let mut file = format!("ofi-av-{}-", rustix::process::geteuid().as_raw());
    for part in [name.domain, "\0", name.name] {
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => file.push(byte.into()),
                0 => file.push('.'),
                byte => file.push_str(&format!("%{byte:02x}")),
            }
        }
    }
    // Leaves room for the suffix of the array's file.
    if name.name.is_empty() || file.len() > 240 {
        return Err(Errno::EINVAL);
    }
    Ok(Path::new("/dev/shm").join(file))
}

/// The file of the array at `map_addr`.
fn map_path(path: &Path) -> PathBuf {
    // The table's own name contains no such dot.
    path.with_added_extension("map")
}

/// Returns whether the file has not been removed or replaced.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let open = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A forked child shares its parent's locks, and must not release them.
        if self.process != std::process::id() {
            return;
        }
        // The last process removes the files. A process that has just opened them will notice and
        // start again.
        if self.file.try_lock().is_ok() && is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = std::fs::remove_file(map_path(&self.path));
            let _ = std::fs::remove_file(&self.path);
        }
        // A forked child may have the file open, and therefore the lock.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests;
