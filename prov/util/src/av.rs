//! Address vectors (fi_av(3)): the peers of a process, by number.
//!
//! Both types of vectors are tables: the `fi_addr_t` of an address is its
//! index. An address takes few bytes (see [`entry`]), the way back from it to
//! its index a few more.

pub mod entry;
mod keys;
mod map_array;
mod shared;
pub mod symmetric;
mod table;

use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::*;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::entry::{Entry, V4Entry, V6Entry};
use self::keys::{AuthKeys, UserIds};
use self::shared::Shared;
use self::table::Table;
use crate::errno::{Errno, Result};
use crate::sockaddr;

pub use self::shared::Name;

/// How to open a vector.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// `FI_SOCKADDR_*` of the domain. The general formats take addresses of
    /// both families.
    pub format: u32,
    /// Upper bits of a `fi_addr_t` that name a receive context.
    pub rx_ctx_bits: u32,
    /// Whether addresses are only reported by the identifiers that the
    /// application sets (`FI_AV_USER_ID`).
    pub user_ids: bool,
    /// Size of authorization keys in a domain that takes them from the vector
    /// (`FI_AV_AUTH_KEY`), 0 for any size.
    pub auth_key_size: Option<usize>,
    /// Whether insertions report through an event queue (`FI_EVENT`).
    pub asynchronous: bool,
    /// How many addresses are expected; saves time, not a limit.
    pub count: usize,
    /// The table to share with other processes.
    pub shared: Option<Name<'a>>,
    /// Where to log.
    pub target: &'static str,
}

impl Default for Config<'_> {
    fn default() -> Self {
        Config {
            format: FI_SOCKADDR_IP,
            rx_ctx_bits: 0,
            user_ids: false,
            auth_key_size: None,
            asynchronous: false,
            count: 0,
            shared: None,
            target: crate::logging::UTIL.av,
        }
    }
}

/// One address to insert.
#[derive(Clone, Copy, Debug)]
pub struct Insertion {
    /// The address, or why there is none.
    pub addr: Result<SocketAddr>,
    /// The application's identifier (`FI_AV_USER_ID`).
    pub user_id: Option<u64>,
    /// The handle of an authorization key (`FI_AUTH_KEY`).
    pub auth_key: Option<u64>,
}

impl From<SocketAddr> for Insertion {
    fn from(addr: SocketAddr) -> Self {
        Insertion {
            addr: Ok(addr),
            user_id: None,
            auth_key: None,
        }
    }
}

/// Somebody who keeps state for addresses of a vector, an endpoint.
pub trait Observer: Send + Sync {
    /// The address is no longer in the vector; its number may come to mean
    /// another one. Called without a lock held.
    fn removed(&self, fi_addr: fi_addr_t);
}

/// Where insertions of an asynchronous vector are reported: an event queue.
pub trait InsertEvents: Send + Sync {
    /// The address at `index` of the call with this `context` was not inserted.
    fn failed(&self, context: *mut c_void, index: usize, error: Errno);

    /// The call with this `context` is complete and inserted `count` addresses.
    fn complete(&self, context: *mut c_void, count: usize);
}

/// An address vector.
pub struct Av {
    state: RwLock<State>,
    /// `None` in a vector that is not asynchronous.
    events: Option<Mutex<Option<Arc<dyn InsertEvents>>>>,
    observers: Mutex<Vec<Weak<dyn Observer>>>,
    format: u32,
    rx_ctx_bits: u32,
    auth_key_size: Option<usize>,
    user_ids_required: bool,
    /// Whether [`Av::reported`] has to look: addresses may be reported as
    /// something else than themselves.
    user_ids: AtomicBool,
    target: &'static str,
}

struct State {
    store: Store,
    ids: UserIds,
    keys: AuthKeys,
}

enum Store {
    V4(Table<V4Entry>),
    V6(Table<V6Entry>),
    SharedV4(Shared<V4Entry>),
    SharedV6(Shared<V6Entry>),
}

/// What to do with whatever store there is.
macro_rules! with_store {
    ($store:expr, $any:ident => $do:expr) => {
        match $store {
            Store::V4($any) => $do,
            Store::V6($any) => $do,
            Store::SharedV4($any) => $do,
            Store::SharedV6($any) => $do,
        }
    };
}

impl Av {
    /// Opens a vector; for a shared one errors as fi_av_open(3) has them.
    pub fn open(config: &Config<'_>) -> Result<Self> {
        if config.rx_ctx_bits > 32 {
            return Err(Errno::EINVAL);
        }
        let only_v4 = config.format == FI_SOCKADDR_IN;
        let store = match &config.shared {
            Some(name) if only_v4 => Store::SharedV4(Shared::open(name)?),
            Some(name) => Store::SharedV6(Shared::open(name)?),
            // A vector for both families begins with the small slots.
            None => Store::V4(Table::expecting(config.count)),
        };
        Ok(Av {
            state: RwLock::new(State {
                store,
                ids: UserIds::new(config.user_ids),
                keys: AuthKeys::default(),
            }),
            events: config.asynchronous.then(Mutex::default),
            observers: Mutex::default(),
            format: config.format,
            rx_ctx_bits: config.rx_ctx_bits,
            auth_key_size: config.auth_key_size,
            user_ids_required: config.user_ids,
            user_ids: AtomicBool::new(config.user_ids),
            target: config.target,
        })
    }

    /// The `FI_SOCKADDR_*` format that the vector was opened with.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// Calls `observer` when addresses are removed, as long as it lives.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        let mut observers = self.observers.lock();
        observers.retain(|observer| observer.strong_count() != 0);
        observers.push(observer);
    }

    /// The address of a peer; `None` where `fi_addr` means none.
    pub fn lookup(&self, fi_addr: fi_addr_t) -> Option<SocketAddr> {
        let index = self.index(fi_addr)?;
        with_store!(&self.read().store, store => store.get(index)?.unpack())
    }

    /// The number of an address.
    pub fn find(&self, addr: &SocketAddr) -> Option<fi_addr_t> {
        self.read().find(addr).map(fi_addr_t::from)
    }

    /// What completions report for a peer of a known number.
    #[inline]
    pub fn reported(&self, fi_addr: fi_addr_t) -> fi_addr_t {
        if !self.user_ids.load(Ordering::Relaxed) {
            return fi_addr;
        }
        match self.index(fi_addr) {
            Some(index) => self.read().ids.reported(index),
            None => fi_addr,
        }
    }

    /// What completions report for a peer at an address (`FI_SOURCE`):
    /// `FI_ADDR_NOTAVAIL` for one that is not in the vector.
    pub fn source(&self, addr: &SocketAddr) -> fi_addr_t {
        let state = self.read();
        match state.find(addr) {
            Some(index) => state.ids.reported(index),
            None => FI_ADDR_NOTAVAIL as fi_addr_t,
        }
    }

    /// How many addresses there are.
    pub fn len(&self) -> usize {
        with_store!(&self.read().store, store => store.len())
    }

    /// Whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the array that maps insertion order to `fi_addr_t`, 0 for a
    /// vector that is not shared.
    pub fn map_addr(&self) -> usize {
        match &self.read().store {
            Store::SharedV4(shared) => shared.map_addr(),
            Store::SharedV6(shared) => shared.map_addr(),
            Store::V4(_) | Store::V6(_) => 0,
        }
    }

    /// Inserts addresses and calls `report` for each in order, with its number
    /// or why it has none; returns how many are in the vector now. An address
    /// that is there already keeps its number, and has to be removed as often
    /// as it was inserted (once, where the vector is shared).
    ///
    /// Errors are those that concern the call as a whole.
    pub fn insert(
        &self,
        insertions: impl IntoIterator<Item = Insertion>,
        mut report: impl FnMut(usize, Result<fi_addr_t>),
    ) -> Result<usize> {
        let mut state = self.write();
        let mut outcomes = Outcomes {
            at: 0,
            inserted: 0,
            report: &mut report,
        };
        let insertions = insertions.into_iter();
        match &state.store {
            Store::SharedV4(shared) => insert_shared(shared, insertions, &mut outcomes)?,
            Store::SharedV6(shared) => insert_shared(shared, insertions, &mut outcomes)?,
            Store::V4(_) | Store::V6(_) => {
                for insertion in insertions {
                    let outcome = state.insert(self, &insertion);
                    outcomes.note(outcome);
                }
            }
        }
        Ok(outcomes.inserted)
    }

    /// Reports insertions to `events` from now on; `-FI_EINVAL` for a vector
    /// that is not asynchronous.
    pub fn report_to(&self, events: Arc<dyn InsertEvents>) -> Result {
        let place = self.events.as_ref().ok_or(Errno::EINVAL)?;
        *place.lock() = Some(events);
        Ok(())
    }

    /// Drops what [`Av::report_to`] was given.
    pub fn report_to_nobody(&self) {
        if let Some(place) = &self.events {
            *place.lock() = None;
        }
    }

    /// Inserts as [`Av::insert`] does, and as an application's call: the
    /// outcome of an asynchronous vector is an event for each error and one
    /// for the call with this `context`, and the call itself returns 0.
    /// `-FI_ENOEQ` where nobody takes those events.
    pub fn insert_with_events(
        &self,
        insertions: impl IntoIterator<Item = Insertion>,
        context: *mut c_void,
        mut report: impl FnMut(usize, Result<fi_addr_t>),
    ) -> Result<usize> {
        let Some(place) = &self.events else {
            return self.insert(insertions, report);
        };
        let events = place.lock().clone();
        let events = events.ok_or(Errno::ENOEQ)?;
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

    /// Removes addresses. `-FI_EINVAL` where one of them is none; the others
    /// are removed all the same.
    pub fn remove(&self, fi_addrs: &[fi_addr_t]) -> Result {
        let mut outcome = Ok(());
        let mut gone = Vec::new();
        let mut state = self.write();
        for &fi_addr in fi_addrs {
            match self
                .index(fi_addr)
                .ok_or(Errno::EINVAL)
                .and_then(|index| state.remove(index))
            {
                Ok(true) => gone.push(fi_addr),
                Ok(false) => {}
                Err(error) => {
                    log::info!(target: self.target, "cannot remove address {fi_addr}: {error}");
                    outcome = Err(error);
                }
            }
        }
        drop(state);
        if !gone.is_empty() {
            let observers = self.observers.lock().clone();
            for observer in observers.iter().filter_map(Weak::upgrade) {
                gone.iter().for_each(|&fi_addr| observer.removed(fi_addr));
            }
        }
        outcome
    }

    /// Sets the identifier that is reported for an address; `-FI_EINVAL` for
    /// a vector opened without `FI_AV_USER_ID`.
    pub fn set_user_id(&self, fi_addr: fi_addr_t, id: fi_addr_t) -> Result {
        if !self.user_ids_required || self.lookup(fi_addr).is_none() {
            return Err(Errno::EINVAL);
        }
        let index = self.index(fi_addr).ok_or(Errno::EINVAL)?;
        self.write().ids.set(index, id);
        Ok(())
    }

    /// Adds an authorization key and returns its handle; `-FI_EINVAL` for a
    /// key of the wrong size, `-FI_ENOSYS` where keys do not come from vectors.
    pub fn insert_auth_key(&self, key: &[u8]) -> Result<fi_addr_t> {
        let size = self.auth_key_size.ok_or(Errno::ENOSYS)?;
        if key.is_empty() || size != 0 && key.len() != size {
            return Err(Errno::EINVAL);
        }
        self.write().keys.insert(key).map(fi_addr_t::from)
    }

    /// Calls `read` with the key of a handle, or with the key that an address
    /// was inserted with; `-FI_EINVAL` where there is none.
    pub fn lookup_auth_key<R>(
        &self,
        fi_addr: fi_addr_t,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let state = self.read();
        let index = u32::try_from(fi_addr).map_err(|_| Errno::EINVAL)?;
        let handle = state.keys.of_address(index).unwrap_or(index);
        state.keys.get(handle).map(read).ok_or(Errno::EINVAL)
    }

    /// Calls `each` with every authorization key and its handle, as an
    /// endpoint needs them when it is enabled.
    pub fn auth_keys(&self, mut each: impl FnMut(fi_addr_t, &[u8])) {
        self.read()
            .keys
            .all()
            .for_each(|(handle, key)| each(handle.into(), key));
    }

    /// Removes authorization keys; `-FI_EBUSY` for one that addresses use.
    pub fn remove_auth_keys(&self, handles: &[fi_addr_t]) -> Result {
        let mut state = self.write();
        handles.iter().try_for_each(|&handle| {
            let handle = u32::try_from(handle).map_err(|_| Errno::EINVAL)?;
            state.keys.remove(handle)
        })
    }

    /// Sets the identifier that errors report for an authorization key.
    pub fn set_auth_key_user_id(&self, handle: fi_addr_t, id: fi_addr_t) -> Result {
        if !self.user_ids_required {
            return Err(Errno::EINVAL);
        }
        let handle = u32::try_from(handle).map_err(|_| Errno::EINVAL)?;
        self.write().keys.set_user_id(handle, id)
    }

    /// What errors report for an authorization key.
    pub fn reported_auth_key(&self, handle: fi_addr_t) -> fi_addr_t {
        let id = u32::try_from(handle)
            .ok()
            .and_then(|handle| self.read().keys.user_id(handle));
        match id {
            Some(id) if self.user_ids_required => id,
            _ => handle,
        }
    }

    /// The index that a number means, without its receive context.
    fn index(&self, fi_addr: fi_addr_t) -> Option<u32> {
        u32::try_from(fi_addr & (u64::MAX >> self.rx_ctx_bits)).ok()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }
}

/// Reports the outcomes of insertions and counts the good ones.
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

/// The address of an insertion, if messages can be sent there.
fn destination(insertion: &Insertion) -> Result<SocketAddr> {
    let addr = insertion.addr?;
    if sockaddr::is_destination(&addr) {
        Ok(addr)
    } else {
        Err(Errno::EADDRNOTAVAIL)
    }
}

/// Identifiers and keys belong to one process; shared vectors have none.
fn insert_shared<E: Entry>(
    shared: &Shared<E>,
    insertions: impl Iterator<Item = Insertion>,
    outcomes: &mut Outcomes<'_, impl FnMut(usize, Result<fi_addr_t>)>,
) -> Result {
    let entries = insertions.map(|insertion| {
        if insertion.user_id.is_some() || insertion.auth_key.is_some() {
            return Err(Errno::ENOSYS);
        }
        E::pack(&destination(&insertion)?).ok_or(Errno::EINVAL)
    });
    shared.insert(entries, |outcome| outcomes.note(outcome))
}

impl State {
    fn find(&self, addr: &SocketAddr) -> Option<u32> {
        match &self.store {
            Store::V4(table) => table.find(V4Entry::pack(addr)?, |_| true),
            Store::V6(table) => table.find(V6Entry::pack(addr)?, |_| true),
            Store::SharedV4(shared) => shared.find(V4Entry::pack(addr)?),
            Store::SharedV6(shared) => shared.find(V6Entry::pack(addr)?),
        }
    }

    /// Inserts into a table of this process.
    fn insert(&mut self, av: &Av, insertion: &Insertion) -> Result<u32> {
        let addr = destination(insertion)?;
        let any_family = av.format == FI_ADDR_STR;
        if !any_family && !crate::attr::address_format_fits(av.format, sockaddr::format_of(&addr)) {
            return Err(Errno::EINVAL);
        }
        let key = match insertion.auth_key {
            Some(handle) => {
                let handle = u32::try_from(handle).map_err(|_| Errno::EINVAL)?;
                self.keys.get(handle).ok_or(Errno::EINVAL)?;
                Some(handle)
            }
            None => None,
        };
        if insertion.user_id.is_some() && av.user_ids_required {
            return Err(Errno::EINVAL);
        }
        if addr.is_ipv6()
            && let Store::V4(table) = &self.store
        {
            self.store = Store::V6(table.convert());
        }
        let State { store, keys, ids } = self;
        let index = match store {
            Store::V4(table) => insert_local(table, &addr, keys, key),
            Store::V6(table) => insert_local(table, &addr, keys, key),
            Store::SharedV4(_) | Store::SharedV6(_) => Err(Errno::ENOSYS),
        }?;
        if key.is_some() {
            keys.assign(index, key);
        }
        if let Some(id) = insertion.user_id {
            ids.set(index, id);
            av.user_ids.store(true, Ordering::Relaxed);
        }
        Ok(index)
    }

    /// Takes one insertion back; whether the number is free now.
    fn remove(&mut self, index: u32) -> Result<bool> {
        let gone = match &mut self.store {
            Store::V4(table) => table.remove(index).ok_or(Errno::EINVAL)?,
            Store::V6(table) => table.remove(index).ok_or(Errno::EINVAL)?,
            Store::SharedV4(shared) => shared.remove(index).map(|()| true)?,
            Store::SharedV6(shared) => shared.remove(index).map(|()| true)?,
        };
        if gone {
            self.ids.remove(index);
            self.keys.assign(index, None);
        }
        Ok(gone)
    }
}

fn insert_local<E: Entry>(
    table: &mut Table<E>,
    addr: &SocketAddr,
    keys: &AuthKeys,
    key: Option<u32>,
) -> Result<u32> {
    let entry = E::pack(addr).ok_or(Errno::EINVAL)?;
    // The same address under another key is another peer.
    match table.find(entry, |index| keys.of_address(index) == key) {
        Some(index) => {
            table.insert_again(index);
            Ok(index)
        }
        None => table.insert(entry).ok_or(Errno::ENOMEM),
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
