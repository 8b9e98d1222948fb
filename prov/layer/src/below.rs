//! The layer kit: what a provider that is layered over another one asks of the library and of the
//! provider below (fi_getinfo(3), fi_fabric(3)), and the objects that it opens there.
//!
//! It uses the public functions and the tables of the objects, so that the provider below may be
//! any provider of the library: written in C, linked in or loaded. It therefore knows neither the
//! seam nor the object model: a `fid` from below is never one of its own.

mod addresses;
mod counter;
mod datagrams;
mod endpoint;
mod events;
mod lending;
mod linked;
mod memory;
pub mod offers;
mod passive;
mod peer;
mod queue;
mod slots;
pub mod stand_in;

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

pub use self::addresses::Addresses;
pub use self::counter::Counter;
pub use self::datagrams::DatagramEndpoint;
pub use self::endpoint::{Endpoint, Local, OPT_ONLY_RENDEZVOUS, SharedReceive, Wiring, Written};
pub use self::events::{Asking, Eq, Event};
pub use self::lending::Refused;
pub use self::linked::LinkedEndpoint;
pub use self::linked::Owners;
pub use self::memory::Region;
pub use self::passive::PassiveEndpoint;
pub use self::peer::{PeerObject, PeerSide};
pub use self::queue::{BATCH, Batch, Completion, Cq};
pub use self::slots::{Size, Slot, Slots};

use fabric_abi::symbols::{fi_fabric, fi_freeinfo, fi_getinfo};
use fabric_abi::*;

use crate::marshal::info;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
/// Flag for [`getinfo`]: only core providers, and those of the hidden ones that are named.
pub use prov_objects::attr::CORE_ONLY;
use prov_objects::attr::Info;

/// Flag for [`getinfo`]: also providers that serve other providers. Part of the same interface.
pub const OFFLOAD: u64 = 1 << 61;

/// Flag for [`getinfo`]: also providers that the user has excluded (`FI_PROVIDER`). Part of the same
/// interface.
pub const HIDDEN: u64 = 1 << 60;

/// Returns what the library offers for the hints, all members of which are compared.
///
/// # Errors
/// `-FI_ENODATA` if nothing matches, and any other error of the library.
pub fn getinfo(
    version: u32,
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    hints: &Info,
) -> Result<Vec<Info>> {
    let text = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    let hints = Made(info::to_c(std::slice::from_ref(hints))?);
    let mut list = null_mut();
    // SAFETY: the texts are NULL or terminated, the hints are valid, and `list` is writable, as
    // fi_getinfo(3) demands.
    let status = unsafe {
        fi_getinfo(
            version,
            text(node),
            text(service),
            flags,
            hints.0,
            &mut list,
        )
    };
    done(status)?;
    let mut infos = Vec::new();
    let mut next = list;
    // SAFETY: the list is from the library, in the library's layout, and is freed after it was
    // copied.
    unsafe {
        while let Some(entry) = info::hints(next) {
            infos.push(entry.into());
            next = (*next).next;
        }
        fi_freeinfo(list);
    }
    Ok(infos)
}

/// Hints for the library, freed after the call.
pub struct Made(*mut fi_info);

impl Made {
    /// In C's layout.
    pub fn as_c(&self) -> *mut fi_info {
        self.0
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: the list was made by `info::to_c`, and this value is its only owner.
        unsafe { info::free(self.0) }
    }
}

/// An object that the provider below has opened; closed when it is dropped. It starts with its
/// `fid`.
struct Object<T>(NonNull<T>);

// SAFETY: the interface permits calls of an object's functions from any thread; the owners of the
// object serialize the calls as its threading level requires (fi_domain(3)).
unsafe impl<T> Send for Object<T> {}
// SAFETY: a shared reference permits the same calls, which the owners serialize, as above.
unsafe impl<T> Sync for Object<T> {}

impl Object<fid_ep> {
    /// Sets an option (fi_setopt(3)) to a value of its type.
    fn set_option<T: Copy>(&self, name: c_int, value: T) -> Result {
        let place: *const c_void = (&raw const value).cast();
        // SAFETY: the endpoint is open, and the value has its size.
        let status = unsafe {
            let set = (*(*self.as_ptr()).ops).setopt;
            let set = set.ok_or(Errno::ENOSYS)?;
            set(self.fid(), FI_OPT_ENDPOINT, name, place, size_of::<T>())
        };
        done(status)
    }
}

impl<T> Object<T> {
    /// # Safety
    /// The pointer is what the provider below has opened, or null.
    unsafe fn opened(status: c_int, object: *mut T) -> Result<Self> {
        done(status)?;
        NonNull::new(object).map(Object).ok_or(Errno::EOTHER)
    }

    fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    fn fid(&self) -> *mut fid {
        self.as_ptr().cast()
    }

    fn control(&self, command: c_int, argument: *mut c_void) -> Result {
        // SAFETY: the object is open, and the callers pass an argument of the type that the command
        // has.
        let status = unsafe {
            let control = (*(*self.fid()).ops).control.ok_or(Errno::ENOSYS)?;
            control(self.fid(), command, argument)
        };
        done(status)
    }

    fn bind(&self, other: *mut fid, flags: u64) -> Result {
        // SAFETY: both objects are open during the call.
        let status = unsafe {
            let bind = (*(*self.fid()).ops).bind.ok_or(Errno::ENOSYS)?;
            bind(self.fid(), other, flags)
        };
        done(status)
    }

    /// Returns the descriptor of a queue that was opened with one.
    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        let mut fd: c_int = -1;
        self.control(FI_GETWAIT, (&raw mut fd).cast())?;
        match fd {
            // SAFETY: the descriptor belongs to the queue, and is open as long as the queue, which
            // is borrowed.
            0.. => Ok(unsafe { BorrowedFd::borrow_raw(fd) }),
            _ => Err(Errno::EOTHER),
        }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open, and is closed once, by its only owner.
        let status = unsafe {
            let close = (*(*self.fid()).ops).close;
            close.map_or(0, |close| close(self.fid()))
        };
        if status != 0 {
            log::warn!(target: UTIL.core, "an object below does not close: {status}");
        }
    }
}

/// An open fabric of another provider; closed when it is dropped. Everything that was opened from
/// it must be closed before.
pub struct Fabric(Object<fid_fabric>);

impl Fabric {
    /// Opens the fabric of an entry that [`getinfo`] returned.
    ///
    /// # Errors
    /// What the library or the provider returns.
    pub fn open(entry: &Info) -> Result<Fabric> {
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        let mut fabric = null_mut();
        // SAFETY: the entry has all of its attributes, and fi_fabric(3) copies those that it keeps.
        let status = unsafe { fi_fabric((*entry.0).fabric_attr, &mut fabric, null_mut()) };
        // SAFETY: the library has opened the fabric if `status` is 0, and it has no other owner.
        unsafe { Object::opened(status, fabric) }.map(Fabric)
    }

    /// Returns the object, for calls into the provider that created it. It is open as long as this
    /// value lives.
    pub fn as_c(&self) -> *mut fid_fabric {
        self.0.as_ptr()
    }

    /// Returns whether a thread may sleep on the descriptors of these queues of the fabric
    /// (fi_trywait(3)).
    pub fn may_sleep(&self, cqs: &[&Cq], eq: Option<&Eq>) -> bool {
        let mut fids: Vec<fid_t> = cqs.iter().map(|cq| cq.fid()).collect();
        fids.extend(eq.map(Eq::fid));
        // SAFETY: the objects are open during the call, and `fids` has their number.
        unsafe {
            match (*(*self.as_c()).ops).trywait {
                Some(trywait) => trywait(self.as_c(), fids.as_mut_ptr(), fids.len() as c_int) == 0,
                None => false,
            }
        }
    }
}

/// An open domain of the provider below (fi_domain(3)).
pub struct Domain {
    object: Object<fid_domain>,
    fabric: Arc<Fabric>,
}

impl Domain {
    /// Opens the domain of an entry that [`getinfo`] returned.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(fabric: &Arc<Fabric>, entry: &Info) -> Result<Arc<Domain>> {
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        let mut domain = null_mut();
        // SAFETY: the entry has all of its attributes, and the fabric is open.
        let object = unsafe {
            let open = (*(*fabric.as_c()).ops).domain.ok_or(Errno::ENOSYS)?;
            let status = open(fabric.as_c(), entry.0, &mut domain, null_mut());
            Object::opened(status, domain)?
        };
        Ok(Arc::new(Domain {
            object,
            fabric: fabric.clone(),
        }))
    }

    /// Returns the fabric that it belongs to.
    pub fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    fn as_c(&self) -> *mut fid_domain {
        self.object.as_ptr()
    }

    /// Returns the largest sum of elements of this type, an atomic operation, in elements; 0 if there
    /// is none.
    pub fn atomic_limit(&self, datatype: fi_datatype) -> usize {
        // SAFETY: zero is a valid value of the attributes, the domain is open, and the attributes
        // are writable.
        unsafe {
            let mut attr: fi_atomic_attr = std::mem::zeroed();
            match (*(*self.as_c()).ops).query_atomic {
                Some(query) if query(self.as_c(), datatype, FI_SUM, &mut attr, 0) == 0 => {
                    attr.count
                }
                _ => 0,
            }
        }
    }
}

/// Upper limit of an address in bytes.
const LONGEST_ADDRESS: usize = 256;

/// Returns the own address of an open endpoint (fi_getname(3)).
///
/// # Safety
/// The table belongs to the object, which is open.
unsafe fn name_of(ops: *const fi_ops_cm, fid: *mut fid) -> Result<Vec<u8>> {
    let mut bytes = vec![0; LONGEST_ADDRESS];
    let mut len = bytes.len();
    // SAFETY: the caller guarantees that the object is open and that the table is its own; `bytes`
    // has `len` bytes.
    let status = unsafe {
        let getname = (*ops).getname.ok_or(Errno::ENOSYS)?;
        getname(fid, bytes.as_mut_ptr().cast(), &mut len)
    };
    done(status)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Sets the address of an open endpoint (fi_setname(3)).
///
/// # Safety
/// As for [`name_of`].
unsafe fn set_name_of(ops: *const fi_ops_cm, fid: *mut fid, address: &[u8]) -> Result {
    // SAFETY: the caller guarantees that the object is open and that the table is its own; the
    // address is valid during the call.
    let status = unsafe {
        let setname = (*ops).setname.ok_or(Errno::ENOSYS)?;
        setname(fid, address.as_ptr().cast_mut().cast(), address.len())
    };
    done(status)
}

/// Converts the result of a call that returns 0 or a negative error number.
fn done(status: c_int) -> Result {
    match status {
        0 => Ok(()),
        error => Err(Errno::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_void};

    use super::*;
    use crate::missing;
    use prov_objects::attr::{FabricAttr, version};

    /// Returns each requested entry twice, the second time without a node.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        _flags: u64,
        hints: *const fi_info,
        list: *mut *mut fi_info,
    ) -> c_int {
        assert!(service.is_null());
        // SAFETY: the tests pass valid arguments, as the manual page demands.
        unsafe {
            let mut info = Info::from(info::hints(hints).unwrap());
            if info.caps == FI_RMA {
                return -libc::ENODATA;
            }
            info.fabric.api_version = version;
            let mut named = info.clone();
            named.dest_addr = CStr::from_ptr(node).to_bytes().to_vec();
            list.write(info::to_c(&[named, info]).unwrap());
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_freeinfo(list: *mut fi_info) {
        // SAFETY: the list was made by `fi_getinfo` of this module, and is freed once.
        unsafe { info::free(list) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_fabric(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        _context: *mut c_void,
    ) -> c_int {
        // SAFETY: the tests pass valid arguments, as the manual page demands.
        unsafe {
            if (*attr).name.is_null() {
                return -libc::ENODATA;
            }
            let made = fid_fabric {
                fid: fid {
                    fclass: FI_CLASS_FABRIC,
                    context: null_mut(),
                    ops: (&raw const OPS).cast_mut(),
                },
                ops: null_mut(),
                api_version: (*attr).api_version,
            };
            fabric.write(Box::into_raw(Box::new(made)));
        }
        0
    }

    static OPS: fi_ops = fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: missing::slot(),
        control: missing::slot(),
        ops_open: missing::slot(),
        tostr: missing::slot(),
        ops_set: missing::slot(),
    };

    unsafe extern "C" fn close(fid: *mut fid) -> c_int {
        // SAFETY: the fabric was made by `fi_fabric` of this module, and is closed once.
        drop(unsafe { Box::from_raw(fid.cast::<fid_fabric>()) });
        0
    }

    fn entry(name: Option<&str>) -> Info {
        Info {
            caps: FI_MSG,
            fabric: FabricAttr {
                name: name.map(str::to_owned),
                api_version: version(1, 17),
                ..FabricAttr::default()
            },
            ..Info::default()
        }
    }

    #[test]
    fn what_the_library_offers_comes_back_as_values() {
        let mut hints = entry(Some("below"));
        let ask = |hints: &Info| getinfo(version(2, 0), Some(c"node"), None, 0, hints);
        let infos = ask(&hints).unwrap();
        assert_eq!(infos.len(), 2);
        assert_eq!(infos[0].dest_addr, b"node");
        assert!(infos[1].dest_addr.is_empty());
        assert_eq!(infos[1].fabric.api_version, version(2, 0));
        hints.caps = FI_RMA;
        assert_eq!(ask(&hints), Err(Errno::ENODATA));
    }

    #[test]
    fn a_fabric_is_open_until_it_is_dropped() {
        let fabric = Fabric::open(&entry(Some("below"))).unwrap();
        // SAFETY: the fabric is open until it is dropped.
        unsafe { assert_eq!((*fabric.as_c()).api_version, version(1, 17)) };
        drop(fabric);
        let refused = Fabric::open(&entry(None));
        assert_eq!(refused.err(), Some(Errno::ENODATA));
    }
}
