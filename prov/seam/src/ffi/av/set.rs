//! fi_av_set(3): ordered subsets of an address vector, from which the groups of collective
//! operations are formed.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

use super::super::object::{Class, Handle, Use};
use super::super::{bytes, deliver};
use crate::collective::MOST_MEMBERS;
use prov_base::errno::{Errno, Result};
use prov_objects::av::Av;

/// A set of addresses.
pub struct AvSet {
    av: Use<Av>,
    members: Mutex<Vec<fi_addr_t>>,
    /// The key in `fi_av_set_attr::comm_key`; empty if there is none.
    key: Vec<u8>,
    address: fi_addr_t,
}

/// The first address of a set, above the numbers of addresses in vectors.
const FIRST_ADDRESS: u64 = 1 << 62;

/// The number of the next set of the process.
static COUNT: AtomicU64 = AtomicU64::new(FIRST_ADDRESS);

impl AvSet {
    /// Returns the vector.
    pub fn av(&self) -> &Av {
        &self.av
    }

    /// Returns the addresses, in order.
    pub fn members(&self) -> MutexGuard<'_, Vec<fi_addr_t>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key of a group that was established elsewhere; empty without one.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Implements fi_av_set(3).
pub(super) unsafe extern "C" fn av_set(
    av: *mut fid_av,
    attr: *mut fi_av_set_attr,
    set: *mut *mut fid_av_set,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes an open vector, attributes with a key of the length that they
    // contain, and a writable location for the result.
    unsafe {
        let av = Handle::<Av>::from_c(av);
        let made = attr.as_ref().ok_or(Errno::EINVAL).and_then(|attr| {
            let key = bytes(attr.comm_key.cast(), attr.comm_key_size);
            open(&av, attr, key)
        });
        deliver(set, made.map(|set| Handle::new(set, context, Vec::new())))
    }
}

fn open(av: &Handle<Av>, attr: &fi_av_set_attr, key: &[u8]) -> Result<AvSet> {
    let none = FI_ADDR_NOTAVAIL as fi_addr_t;
    let mut members = Vec::new();
    if attr.start_addr != none && attr.end_addr != none {
        // Addresses beyond the vector's last one are invalid.
        let end = attr.end_addr.min(MOST_MEMBERS as u64);
        let stride = usize::try_from(attr.stride).unwrap_or(usize::MAX).max(1);
        let range = (attr.start_addr..=end).step_by(stride);
        members.extend(range.filter(|number| av.with_address(*number, |_| ()).is_some()));
        if attr.count != 0 && members.len() > attr.count {
            return Err(Errno::EINVAL);
        }
    }
    Ok(AvSet {
        av: Use::of(av),
        members: Mutex::new(members),
        key: key.to_vec(),
        address: COUNT.fetch_add(1, Ordering::Relaxed),
    })
}

impl Class for AvSet {
    type Header = fid_av_set;

    fn class(&self) -> usize {
        FI_CLASS_AV_SET
    }

    fn header(&self, fid: fid) -> fid_av_set {
        static OPS: fi_ops_av_set = fi_ops_av_set {
            size: size_of::<fi_ops_av_set>(),
            set_union: Some(set_union),
            intersect: Some(intersect),
            diff: Some(diff),
            insert: Some(insert),
            remove: Some(remove),
            addr: Some(addr),
        };
        fid_av_set {
            fid,
            ops: (&raw const OPS).cast_mut(),
        }
    }
}

/// Combines the members of one set with those of another set of the same vector; `-FI_EINVAL` for
/// sets of different vectors.
///
/// # Safety
/// Both are open sets.
unsafe fn change(
    dst: *mut fid_av_set,
    src: *const fid_av_set,
    change: impl FnOnce(&mut Vec<fi_addr_t>, &[fi_addr_t]),
) -> c_int {
    if src.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that both sets are open.
    let (dst, src) = unsafe {
        let other = Handle::<AvSet>::borrow(src.cast_mut());
        (Handle::<AvSet>::borrow(dst), other)
    };
    if !std::ptr::eq(dst.av(), src.av()) {
        return Errno::EINVAL.to_c();
    }
    // A copy, since a set may be combined with itself.
    let others = src.members().clone();
    change(&mut dst.members(), &others);
    0
}

unsafe extern "C" fn set_union(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int {
    // SAFETY: the application passes open sets.
    unsafe {
        change(dst, src, |members, others| {
            let new: Vec<_> = others
                .iter()
                .filter(|other| !members.contains(other))
                .collect();
            members.extend(new);
        })
    }
}

unsafe extern "C" fn intersect(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int {
    // SAFETY: this function is only in the tables of sets, and the application passes open ones.
    unsafe {
        change(dst, src, |members, others| {
            members.retain(|it| others.contains(it))
        })
    }
}

unsafe extern "C" fn diff(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int {
    // SAFETY: this function is only in the tables of sets, and the application passes open ones.
    unsafe {
        change(dst, src, |members, others| {
            members.retain(|it| !others.contains(it))
        })
    }
}

unsafe extern "C" fn insert(set: *mut fid_av_set, address: fi_addr_t) -> c_int {
    // SAFETY: this function is only in the tables of sets, and the application passes open ones.
    let set = unsafe { Handle::<AvSet>::borrow(set) };
    if set.av.with_address(address, |_| ()).is_none() {
        return Errno::EINVAL.to_c();
    }
    let mut members = set.members();
    if members.contains(&address) || members.len() >= MOST_MEMBERS {
        return Errno::EINVAL.to_c();
    }
    members.push(address);
    0
}

unsafe extern "C" fn remove(set: *mut fid_av_set, address: fi_addr_t) -> c_int {
    // SAFETY: this function is only in the tables of sets, and the application passes open ones.
    let set = unsafe { Handle::<AvSet>::borrow(set) };
    let mut members = set.members();
    let found = members.iter().position(|member| *member == address);
    match found {
        Some(at) => {
            members.remove(at);
            0
        }
        None => Errno::EINVAL.to_c(),
    }
}

unsafe extern "C" fn addr(set: *mut fid_av_set, address: *mut fi_addr_t) -> c_int {
    if address.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: this function is only in the tables of sets; the application passes an open one, and
    // a writable location for the address.
    unsafe { address.write(Handle::<AvSet>::borrow(set).address) };
    0
}
