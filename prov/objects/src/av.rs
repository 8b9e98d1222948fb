//! Address vectors (fi_av(3)): the peers of a process, by number.
//!
//! Both types of vectors are tables: the `fi_addr_t` of an address is its index. Addresses have the
//! domain's format ([`mod@format`]) and are stored compactly ([`entry`], [`slots`]), with a hash table
//! from addresses to indices.
//!
//! The numbers of an imported vector (fi_peer(3)) are its owner's: the caller that inserts an
//! address passes its number.

pub mod entry;
pub mod format;
mod keys;
mod map_array;
mod named;
mod others;
mod shared;
mod slots;
mod store;
pub mod symmetric;
mod table;
mod write_lock;

use prov_base::bounded;
use prov_base::bounds::{OBJECTS, PEERS};
use std::collections::HashSet;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::*;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::format::{Address, Format};
use self::keys::{AuthKeys, UserIds};
use self::others::{INSERTIONS, Observers, Watched};
use self::shared::Shared;
use self::store::{SlotIndex, Store};
use crate::fid::AnyFid;
use prov_base::errno::{Errno, Result};

pub use self::others::Changes;
pub use self::shared::Name;

/// How to open a vector.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The format of the domain's addresses.
    pub format: Format,
    /// Number of upper bits of a `fi_addr_t` that name a receive context.
    pub rx_ctx_bits: u32,
    /// Whether only the application's identifiers are reported for addresses (`FI_AV_USER_ID`).
    pub user_ids: bool,
    /// Whether an address keeps the identifier that is given at its insertion.
    pub takes_user_ids: bool,
    /// Size of authorization keys in a domain that takes them from the vector (`FI_AV_AUTH_KEY`); 0
    /// for any size.
    pub auth_key_size: Option<usize>,
    /// Whether insertions report through an event queue (`FI_EVENT`).
    pub asynchronous: bool,
    /// Whether `fi_av_remove` refuses flags that have no meaning.
    pub is_strict: bool,
    /// Expected number of addresses: a hint for allocation, not a limit.
    pub count: usize,
    /// The table to be shared with other processes.
    pub shared: Option<Name<'a>>,
    /// The log target.
    pub target: &'static str,
}

/// Limit of the upper bits of a `fi_addr_t` that may name a receive context: the other 32 are the
/// number of an address.
pub const MAX_RX_CTX_BITS: u32 = 32;

impl Default for Config<'_> {
    fn default() -> Self {
        Config {
            format: Format::IP,
            rx_ctx_bits: 0,
            user_ids: false,
            takes_user_ids: true,
            auth_key_size: None,
            asynchronous: false,
            is_strict: true,
            count: 0,
            shared: None,
            target: prov_base::logging::UTIL.av,
        }
    }
}

/// One address to insert.
#[derive(Clone, Copy, Debug)]
pub struct Insertion<'a> {
    /// The address, or the error that it was read with.
    pub addr: Result<Address<'a>>,
    /// The application's identifier (`FI_AV_USER_ID`); in an imported vector, the owner's number.
    pub user_id: Option<u64>,
    /// The handle of an authorization key (`FI_AUTH_KEY`).
    pub auth_key: Option<u64>,
    /// Whether the peer cannot be connected to (`FI_FIREWALL_ADDR`).
    pub only_calls: bool,
}

impl<'a, A: Into<Address<'a>>> From<A> for Insertion<'a> {
    fn from(addr: A) -> Self {
        Insertion {
            addr: Ok(addr.into()),
            user_id: None,
            auth_key: None,
            only_calls: false,
        }
    }
}

/// An object that keeps state for addresses of a vector, such as an endpoint.
pub trait Observer: Send + Sync {
    /// The address was removed from the vector; its number may be assigned to another one. Called
    /// without holding a lock.
    fn removed(&self, fi_addr: fi_addr_t);
}

/// An object that is informed when an address vector grows.
pub trait InsertObserver: Send + Sync {
    /// Addresses were inserted. Called without holding a lock.
    fn inserted(&self);
}

/// The destination of an asynchronous vector's completions: an event queue.
pub trait InsertEvents: Send + Sync {
    /// The address at `index` of the call with this `context` was not inserted.
    fn failed(&self, context: *mut c_void, index: usize, error: Errno);

    /// The call with this `context` is complete and inserted `count` addresses.
    fn complete(&self, context: *mut c_void, count: usize);
}

/// The owner of an imported vector: another provider (fi_peer(3)).
pub trait AvOwner: Send + Sync {
    /// Returns the number of addresses in its vector.
    fn count(&self) -> Result<usize>;

    /// Returns the number of a local endpoint's address, `FI_ADDR_NOTAVAIL` for an address that is
    /// not in its vector.
    fn endpoint_number(&self, ep: AnyFid<'_>) -> fi_addr_t;
}

/// Upper limit of the numbers of an imported vector. They are indices of the owner's table, and
/// this process allocates a slot for each smaller index, so the limit bounds that memory.
const MAX_OWNER_NUMBER: fi_addr_t = 1 << 24;

/// An address vector.
pub struct Av {
    often_read: OftenRead,
    state: RwLock<State>,
    /// `None` in a vector that is not asynchronous.
    events: Option<Mutex<Option<Arc<dyn InsertEvents>>>>,
    observers: Arc<Observers>,
    /// `None` in a vector that is not shared with other processes.
    _watched: Option<Arc<Watched>>,
    insert_observers: Mutex<Vec<Weak<dyn InsertObserver>>>,
    /// `None` in a vector of this provider's own.
    owner: Option<Box<dyn AvOwner>>,
    format: Format,
    rx_ctx_bits: u32,
    auth_key_size: Option<usize>,
    user_ids_required: bool,
    takes_user_ids: bool,
    is_strict: bool,
    target: &'static str,
}

/// What each message may read: apart from the lock of the vector, which threads that use several
/// endpoints with it would otherwise take from one another's caches.
#[repr(align(128))]
struct OftenRead {
    /// Whether [`Av::reported`] has to look up identifiers, because addresses may be reported as
    /// something else.
    user_ids: AtomicBool,
    /// The number of addresses, as of the last change; not kept in a vector that other processes
    /// change, too.
    len: AtomicUsize,
    is_shared: bool,
}

struct State {
    store: Store,
    ids: UserIds,
    keys: AuthKeys,
    /// Addresses of peers that cannot be connected to.
    callers: HashSet<u32>,
}

impl Av {
    /// Opens a vector. For a shared one, errors are those of fi_av_open(3).
    pub fn open(config: &Config<'_>) -> Result<Self> {
        Self::with_owner(config, None)
    }

    /// Opens a vector whose addresses and numbers come from the vector of another provider.
    ///
    /// # Errors `-FI_EINVAL` for a shared vector, and for one with its own identifiers.
    pub fn import(config: &Config<'_>, owner: Box<dyn AvOwner>) -> Result<Self> {
        if config.shared.is_some() || config.user_ids {
            return Err(Errno::EINVAL);
        }
        let count = config.count.max(owner.count()?);
        Self::with_owner(&Config { count, ..*config }, Some(owner))
    }

    fn with_owner(config: &Config<'_>, owner: Option<Box<dyn AvOwner>>) -> Result<Self> {
        if config.rx_ctx_bits > MAX_RX_CTX_BITS {
            return Err(Errno::EINVAL);
        }
        let store = Store::open(config.format, config.count, config.shared.as_ref())?;
        let observers = Arc::<Observers>::default();
        let shared = store.shared();
        let often_read = OftenRead {
            user_ids: AtomicBool::new(config.user_ids),
            len: AtomicUsize::new(store.len()),
            is_shared: shared.is_some(),
        };
        let watched = shared.map(|shared| Watched::new(shared.header_view(), observers.clone()));
        Ok(Av {
            often_read,
            state: RwLock::new(State {
                store,
                ids: UserIds::new(config.user_ids),
                keys: AuthKeys::default(),
                callers: HashSet::new(),
            }),
            events: config.asynchronous.then(Mutex::default),
            observers,
            _watched: watched,
            insert_observers: Mutex::default(),
            owner,
            format: config.format,
            rx_ctx_bits: config.rx_ctx_bits,
            auth_key_size: config.auth_key_size,
            user_ids_required: config.user_ids,
            takes_user_ids: config.takes_user_ids,
            is_strict: config.is_strict,
            target: config.target,
        })
    }

    /// Returns the format that the vector was opened with.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns whether `fi_av_remove` refuses flags that have no meaning.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the number of upper bits of a `fi_addr_t` that name a receive context.
    pub fn rx_ctx_bits(&self) -> u32 {
        self.rx_ctx_bits
    }

    /// The receive context that a number names (`fi_rx_addr`), 0 for none.
    pub fn context_of(&self, fi_addr: fi_addr_t) -> u32 {
        let shift = u64::BITS - self.rx_ctx_bits;
        fi_addr.checked_shr(shift).unwrap_or(0) as u32
    }

    /// Returns the provider that owns an imported vector.
    pub fn owner(&self) -> Option<&dyn AvOwner> {
        self.owner.as_deref()
    }

    /// Calls `observer` when addresses are removed, for as long as the observer lives.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        let mut observers = self.observers.lock();
        observers.retain(|observer| observer.strong_count() != 0);
        observers.push(observer);
        bounded!(observers, OBJECTS);
    }

    /// Calls `observer` when addresses are inserted, for as long as the observer lives.
    pub fn observe_insertions(&self, observer: Weak<dyn InsertObserver>) {
        let mut observers = self.insert_observers.lock();
        observers.retain(|observer| observer.strong_count() != 0);
        observers.push(observer);
        bounded!(observers, OBJECTS);
    }

    /// Returns the internet address of a peer; `None` if `fi_addr` is invalid or the vector has
    /// other addresses.
    pub fn lookup(&self, fi_addr: fi_addr_t) -> Option<SocketAddr> {
        let internet = |addr: Address<'_>| match addr {
            Address::Internet(addr) => Some(addr),
            Address::Bytes(_) => None,
        };
        self.with_address(fi_addr, internet).flatten()
    }

    /// Calls `read` with the address of a peer, whatever its format. The vector is locked against
    /// insertions during the call.
    pub fn with_address<R>(
        &self,
        fi_addr: fi_addr_t,
        read: impl FnOnce(Address<'_>) -> R,
    ) -> Option<R> {
        let index = self.index(fi_addr)?;
        self.read().store.get(index, read)
    }

    /// Returns the number of an internet address.
    pub fn find(&self, addr: &SocketAddr) -> Option<fi_addr_t> {
        self.read().store.find_internet(addr).map(fi_addr_t::from)
    }

    /// Returns the number of an address of any format.
    pub fn find_address(&self, addr: Address<'_>) -> Option<fi_addr_t> {
        self.read().store.find(&addr).map(fi_addr_t::from)
    }

    /// Returns what completions report for a peer with a known number.
    #[inline(always)]
    pub fn reported(&self, fi_addr: fi_addr_t) -> fi_addr_t {
        match self.has_user_ids() {
            true => self.user_id(fi_addr),
            false => fi_addr,
        }
    }

    /// Returns whether completions may report something else than the number of a peer.
    #[inline(always)]
    pub fn has_user_ids(&self) -> bool {
        self.often_read.user_ids.load(Ordering::Relaxed)
    }

    #[inline(never)]
    fn user_id(&self, fi_addr: fi_addr_t) -> fi_addr_t {
        match self.index(fi_addr) {
            Some(index) => self.read().ids.reported(index),
            None => fi_addr,
        }
    }

    /// Returns what completions report for a peer at an address (`FI_SOURCE`): `FI_ADDR_NOTAVAIL`
    /// if the address is not in the vector.
    pub fn source(&self, addr: &SocketAddr) -> fi_addr_t {
        let state = self.read();
        match state.store.find_internet(addr) {
            Some(index) => state.ids.reported(index),
            None => FI_ADDR_NOTAVAIL as fi_addr_t,
        }
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        match self.often_read.is_shared {
            true => self.read().store.len(),
            false => self.often_read.len.load(Ordering::Acquire),
        }
    }

    /// Returns a number behind those of all addresses, in a vector that is not shared with other
    /// processes.
    pub fn end(&self) -> fi_addr_t {
        self.read().store.end() as fi_addr_t
    }

    /// Returns whether the vector is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the array that maps insertion order to `fi_addr_t` (fi_av(3),
    /// `map_addr`), 0 for a vector that is not shared.
    pub fn map_addr(&self) -> usize {
        self.read().store.shared().map_or(0, Shared::map_addr)
    }

    /// Inserts addresses and calls `report` for each in order, with its number or its error.
    /// Returns how many were inserted. An address that is already there keeps its number, and has
    /// to be removed as often as it was inserted (once, if the vector is shared).
    ///
    /// # Errors Those that concern the call as a whole.
    pub fn insert<'a>(
        &self,
        insertions: impl IntoIterator<Item = Insertion<'a>>,
        mut report: impl FnMut(usize, Result<fi_addr_t>),
    ) -> Result<usize> {
        let mut state = self.write();
        let mut outcomes = Outcomes {
            at: 0,
            inserted: 0,
            report: &mut report,
        };
        let insertions = insertions.into_iter();
        if let Some(shared) = state.store.shared() {
            let records = insertions.map(|insertion| self.record(&insertion));
            shared.insert(records, |outcome| outcomes.note(outcome))?;
        } else {
            for insertion in insertions {
                let outcome = state.insert(self, &insertion);
                outcomes.note(outcome);
            }
        }
        let inserted = outcomes.inserted;
        self.has_changed(&state);
        drop(state);
        INSERTIONS.fetch_add(1, Ordering::Release);
        let observers = self.insert_observers.lock().clone();
        for observer in observers.iter().filter_map(Weak::upgrade) {
            observer.inserted();
        }
        Ok(inserted)
    }

    /// Sets the destination of insertion events.
    ///
    /// # Errors `-FI_EINVAL` for a vector that is not asynchronous.
    pub fn report_to(&self, events: Arc<dyn InsertEvents>) -> Result {
        let place = self.events.as_ref().ok_or(Errno::EINVAL)?;
        *place.lock() = Some(events);
        Ok(())
    }

    /// Removes the destination of insertion events.
    pub fn report_to_nobody(&self) {
        if let Some(place) = &self.events {
            *place.lock() = None;
        }
    }

    /// Inserts like [`Av::insert`], for an application's call: an asynchronous vector reports an
    /// event for each error and one for the call with this `context`, and the call itself returns
    /// 0. If no event queue is bound, the insertion is synchronous.
    pub fn insert_with_events<'a>(
        &self,
        insertions: impl IntoIterator<Item = Insertion<'a>>,
        context: *mut c_void,
        mut report: impl FnMut(usize, Result<fi_addr_t>),
    ) -> Result<usize> {
        let events = self.events.as_ref().and_then(|place| place.lock().clone());
        let Some(events) = events else {
            return self.insert(insertions, report);
        };
        let mut errors = Vec::new();
        let count = self.insert(insertions, |at, outcome| {
            report(at, outcome);
            errors.extend(outcome.err().map(|error| (at, error)));
        })?;
        for (at, error) in errors {
            events.failed(context, at, error);
        }
        events.complete(context, count);
        Ok(0)
    }

    /// Removes addresses.
    ///
    /// # Errors `-FI_EINVAL` if one of the numbers is invalid; the others are removed all the same.
    pub fn remove(&self, fi_addrs: &[fi_addr_t]) -> Result {
        let mut outcome = Ok(());
        let mut gone = Vec::new();
        let mut state = self.write();
        for &fi_addr in fi_addrs {
            match self
                .index(fi_addr)
                .ok_or(Errno::EINVAL)
                .and_then(|index| state.remove(index, self.owner.is_none()))
            {
                Ok(true) => gone.push(fi_addr),
                Ok(false) => {}
                Err(error) => {
                    log::info!(target: self.target, "cannot remove address {fi_addr}: {error}");
                    outcome = Err(error);
                }
            }
        }
        self.has_changed(&state);
        drop(state);
        if !gone.is_empty() {
            gone.iter()
                .for_each(|&fi_addr| others::tell(&self.observers, fi_addr));
        }
        outcome
    }

    /// Whether the peer at an address was inserted as one that cannot be connected to
    /// (`FI_FIREWALL_ADDR`).
    pub fn only_calls(&self, fi_addr: fi_addr_t) -> bool {
        let index = self.index(fi_addr);
        index.is_some_and(|index| self.read().callers.contains(&index))
    }

    /// Returns the index in a number, without its receive context.
    fn index(&self, fi_addr: fi_addr_t) -> Option<u32> {
        u32::try_from(fi_addr & (u64::MAX >> self.rx_ctx_bits)).ok()
    }

    /// Returns the record of an insertion in a shared table. Identifiers and keys belong to one
    /// process; shared vectors have none.
    fn record(&self, insertion: &Insertion<'_>) -> Result<Vec<u8>> {
        if insertion.user_id.is_some() || insertion.auth_key.is_some() {
            return Err(Errno::ENOSYS);
        }
        let addr = insertion.addr.as_ref().map_err(|&error| error)?;
        self.format.admit(addr)?;
        store::encode(&self.format, addr)
    }

    /// Publishes the number of addresses: before the lock is released, so that who reads it finds
    /// the addresses.
    fn has_changed(&self, state: &State) {
        if !self.often_read.is_shared {
            self.often_read
                .len
                .store(state.store.len(), Ordering::Release);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }
}

/// Reports the outcomes of insertions, and counts the successful ones.
struct Outcomes<'a, F> {
    at: usize,
    inserted: usize,
    report: &'a mut F,
}

impl<F: FnMut(usize, Result<fi_addr_t>)> Outcomes<'_, F> {
    fn note(&mut self, outcome: Result<u32>) {
        self.inserted += usize::from(outcome.is_ok());
        (self.report)(self.at, outcome.map(fi_addr_t::from));
        self.at += 1;
    }
}

impl State {
    /// Inserts into a table that only this process uses.
    fn insert(&mut self, av: &Av, insertion: &Insertion<'_>) -> Result<u32> {
        let addr = insertion.addr.as_ref().map_err(|&error| error)?;
        av.format.admit(addr)?;
        let key = match insertion.auth_key {
            Some(handle) => {
                let handle = u32::try_from(handle).map_err(|_| Errno::EINVAL)?;
                self.keys.get(handle).ok_or(Errno::EINVAL)?;
                Some(handle)
            }
            None => None,
        };
        let (place, user_id) = match insertion.user_id {
            Some(_) if av.user_ids_required => return Err(Errno::EINVAL),
            Some(number) if av.owner.is_some() && number < MAX_OWNER_NUMBER => {
                (SlotIndex::At(number as u32), None)
            }
            _ if av.owner.is_some() => return Err(Errno::EINVAL),
            // The identifier is kept only if identifiers are reported.
            user_id => (SlotIndex::Any, user_id.filter(|_| av.takes_user_ids)),
        };
        let State {
            store,
            keys,
            ids,
            callers,
        } = self;
        // The same address with another key, or with another number of the owner, is another peer.
        let index = store.insert(addr, place, |index| {
            keys.of_address(index) == key && !matches!(place, SlotIndex::At(at) if at != index)
        })?;
        if key.is_some() {
            keys.assign(index, key);
        }
        if let Some(id) = user_id {
            ids.set(index, id);
            av.often_read.user_ids.store(true, Ordering::Relaxed);
        }
        if insertion.only_calls {
            callers.insert(index);
            bounded!(callers, PEERS);
        }
        Ok(index)
    }

    /// Undoes one insertion. Returns whether the number is free.
    fn remove(&mut self, index: u32, reuse: bool) -> Result<bool> {
        let gone = self.store.remove(index, reuse)?;
        if gone {
            self.ids.remove(index);
            self.keys.assign(index, None);
            self.callers.remove(&index);
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
