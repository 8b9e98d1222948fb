//! The provider below of the tests, whose functions note what they are called with, and a fabric of it
//! with the hook over it.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{from_ref, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

use super::super::Entry;
use super::{Watch, seen};
use crate::stand_in;

/// A provider below: one object of each class, and what it was last called with.
pub struct Lower {
    pub fabric: fid_fabric,
    pub domain: fid_domain,
    pub ep: fid_ep,
    pub eq: fid_eq,
    pub cq: fid_cq,
    pub cntr: fid_cntr,
    pub mr: fid_mr,
    pub wait: fid_wait,
    /// The queue that a shared event queue writes to.
    pub relay: *mut fid_eq,
    /// Arguments of the last call, addresses and numbers.
    pub seen: Vec<usize>,
}

/// The state of the test that runs.
static LOWER: Mutex<usize> = Mutex::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn see(arguments: &[usize]) {
    lower().seen = arguments.to_vec();
}

pub fn lower() -> &'static mut Lower {
    let place = *LOWER.lock().unwrap();
    // SAFETY: the test that runs has put it there, and no other one runs.
    unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Lower>(place) }
}

extern "C" fn close(object: *mut fid) -> c_int {
    see(&[object.addr()]);
    0
}

extern "C" fn bind(object: *mut fid, other: *mut fid, flags: u64) -> c_int {
    see(&[object.addr(), other.addr(), flags as usize]);
    lower().mr.key = 77;
    0
}

extern "C" fn control(object: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    see(&[object.addr(), command as usize, argument.addr()]);
    0
}

static OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: Some(control),
    ops_open: None,
    tostr: None,
    ops_set: None,
};

macro_rules! opens {
    ($name:ident($parent:ty, $attr:ty) -> $object:ty = $member:ident) => {
        extern "C" fn $name(
            parent: *mut $parent,
            attr: *mut $attr,
            place: *mut *mut $object,
            context: *mut c_void,
        ) -> c_int {
            see(&[parent.addr(), attr.addr(), context.addr()]);
            let object = &raw mut lower().$member;
            // SAFETY: the wrapper has passed a place.
            unsafe {
                (*object).fid.context = context;
                place.write(object);
            }
            0
        }
    };
}

opens!(domain(fid_fabric, fi_info) -> fid_domain = domain);
extern "C" fn eq_open(
    _fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    place: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the tests give attributes, the wrapper has passed a place, and the context is that of
    // a shared queue where the flags say so.
    unsafe {
        if (*attr).flags & FI_PEER != 0 {
            lower().relay = (*context.cast::<fi_peer_eq_context>()).eq;
        }
        lower().eq.fid.context = context;
        place.write(&raw mut lower().eq);
    }
    0
}

opens!(cntr_open(fid_domain, fi_cntr_attr) -> fid_cntr = cntr);
opens!(endpoint(fid_domain, fi_info) -> fid_ep = ep);

extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    place: *mut *mut fid_cq,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the tests give attributes, and the wrapper has passed a place.
    unsafe {
        see(&[domain.addr(), (*attr).wait_set.addr()]);
        (*attr).size = 128;
        place.write(&raw mut lower().cq);
    }
    0
}

extern "C" fn wait_open(
    _fabric: *mut fid_fabric,
    _attr: *mut fi_wait_attr,
    place: *mut *mut fid_wait,
) -> c_int {
    // SAFETY: the wrapper has passed a place.
    unsafe { place.write(&raw mut lower().wait) };
    0
}

extern "C" fn trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    // SAFETY: the array has so many objects.
    let objects = (0..count as usize).map(|at| unsafe { *fids.add(at) }.addr());
    see(&std::iter::once(fabric.addr())
        .chain(objects)
        .collect::<Vec<_>>());
    0
}

extern "C" fn mr_regattr(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    _flags: u64,
    place: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the tests give attributes, and the wrapper has passed a place.
    unsafe {
        see(&[domain.addr(), (*attr).base_mr.addr()]);
        lower().mr.key = 5;
        place.write(&raw mut lower().mr);
    }
    0
}

extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    see(&[ep.addr(), msg.addr(), flags as usize]);
    0
}

extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    address: u64,
    context: *mut c_void,
) -> isize {
    see(&[
        ep.addr(),
        buf.addr(),
        len,
        desc.addr(),
        address as usize,
        context.addr(),
    ]);
    0
}

extern "C" fn eq_read(
    _eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    _len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: the tests give room.
    unsafe {
        event.write(FI_CONNECTED);
        buf.cast::<*mut fid>().write((&raw mut lower().ep).cast());
    }
    size_of::<fi_eq_cm_entry>() as isize
}

extern "C" fn cq_sread(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    see(&[cq.addr(), buf.addr(), count, timeout as usize]);
    // SAFETY: the tests give room for two entries.
    unsafe {
        for at in 0..2 {
            buf.cast::<fi_cq_msg_entry>()
                .add(at)
                .write(fi_cq_msg_entry {
                    op_context: std::ptr::without_provenance_mut(at + 1),
                    flags: FI_RECV,
                    len: 10 * (at + 1),
                });
        }
    }
    2
}

/// Tables whose other slots are null.
fn table<T>(fill: impl FnOnce(&mut T)) -> *mut T {
    // SAFETY: tables of function pointers may be zero.
    let mut table: Box<T> = Box::new(unsafe { zeroed() });
    fill(&mut table);
    Box::into_raw(table)
}

/// A fabric of the provider below with the hook over it, for one test.
pub struct Bed {
    lower: *mut Lower,
    pub fabric: *mut fid_fabric,
    tables: Vec<Box<dyn FnOnce()>>,
    _alone: MutexGuard<'static, ()>,
}

impl Bed {
    pub fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables: Vec<Box<dyn FnOnce()>> = Vec::new();
        macro_rules! make {
            ($type:ty, |$table:ident| $fill:expr) => {{
                let made = table::<$type>(|$table| {
                    $table.size = size_of::<$type>();
                    $fill
                });
                // SAFETY: `table` made it, and it is given back once, at the end.
                tables.push(Box::new(move || drop(unsafe { Box::from_raw(made) })));
                made
            }};
        }
        // SAFETY: the objects may be zero.
        let mut lower: Box<Lower> = Box::new(Lower {
            seen: Vec::new(),
            ..unsafe { zeroed_objects() }
        });
        let ops = from_ref(&OPS).cast_mut();
        lower.fabric.fid = fid_of(FI_CLASS_FABRIC, ops);
        lower.fabric.ops = make!(fi_ops_fabric, |table| {
            table.domain = Some(domain);
            table.eq_open = Some(eq_open);
            table.wait_open = Some(wait_open);
            table.trywait = Some(trywait);
        });
        lower.domain.fid = fid_of(FI_CLASS_DOMAIN, ops);
        lower.domain.ops = make!(fi_ops_domain, |table| {
            table.endpoint = Some(endpoint);
            table.cq_open = Some(cq_open);
            table.cntr_open = Some(cntr_open);
        });
        lower.domain.mr = make!(fi_ops_mr, |table| table.regattr = Some(mr_regattr));
        lower.ep.fid = fid_of(FI_CLASS_EP, ops);
        lower.ep.msg = make!(fi_ops_msg, |table| {
            table.sendmsg = Some(sendmsg);
            table.send = Some(send);
        });
        lower.eq.fid = fid_of(FI_CLASS_EQ, ops);
        lower.eq.ops = make!(fi_ops_eq, |table| table.read = Some(eq_read));
        lower.cq.fid = fid_of(FI_CLASS_CQ, ops);
        lower.cq.ops = make!(fi_ops_cq, |table| table.sread = Some(cq_sread));
        // A table of an older interface: it ends before `wait`.
        lower.cntr.fid = fid_of(FI_CLASS_CNTR, ops);
        lower.cntr.ops = make!(fi_ops_cntr, |table| {
            table.size = std::mem::offset_of!(fi_ops_cntr, wait);
        });
        lower.mr.fid = fid_of(FI_CLASS_MR, ops);
        lower.wait.fid = fid_of(FI_CLASS_WAIT, ops);
        let lower = Box::into_raw(lower);
        *LOWER.lock().unwrap() = lower.expose_provenance();
        let provider = Entry::of::<Watch>();
        // SAFETY: attributes may be zero but for the fabric, and the provider outlives the call.
        let fabric = unsafe {
            let mut attr: fi_fabric_attr = zeroed();
            attr.fabric = &raw mut (*lower).fabric;
            let mut fabric = null_mut();
            let open = (*provider.as_c()).fabric.unwrap();
            assert_eq!(open(&mut attr, &mut fabric, provider.as_c().cast()), 0);
            fabric
        };
        seen();
        stand_in::logged();
        Bed {
            lower,
            fabric,
            tables,
            _alone: alone,
        }
    }

    /// Opens a domain.
    pub fn domain(&self) -> *mut fid_domain {
        let mut domain = null_mut();
        // SAFETY: the fabric is open.
        let opened = unsafe {
            let open = (*(*self.fabric).ops).domain.unwrap();
            open(self.fabric, null_mut(), &mut domain, null_mut())
        };
        assert_eq!(opened, 0);
        domain
    }

    pub fn endpoint(&self, domain: *mut fid_domain, context: usize) -> *mut fid_ep {
        let mut ep = null_mut();
        // SAFETY: the domain is open.
        let opened = unsafe {
            let open = (*(*domain).ops).endpoint.unwrap();
            let context = std::ptr::without_provenance_mut(context);
            open(domain, null_mut(), &mut ep, context)
        };
        assert_eq!(opened, 0);
        ep
    }

    pub fn cntr(&self, domain: *mut fid_domain) -> *mut fid_cntr {
        let mut cntr = null_mut();
        // SAFETY: the domain is open.
        let opened = unsafe {
            let open = (*(*domain).ops).cntr_open.unwrap();
            open(domain, null_mut(), &mut cntr, null_mut())
        };
        assert_eq!(opened, 0);
        cntr
    }

    pub fn seen_below(&self) -> Vec<usize> {
        lower().seen.clone()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        close_it(self.fabric.cast());
        for table in self.tables.drain(..) {
            table();
        }
        // SAFETY: made in `new`.
        drop(unsafe { Box::from_raw(self.lower) });
    }
}

/// # Safety
/// The objects consist of numbers and pointers.
unsafe fn zeroed_objects() -> Lower {
    // SAFETY: the caller's promise; an empty vector is made in its place.
    unsafe {
        Lower {
            fabric: zeroed(),
            domain: zeroed(),
            ep: zeroed(),
            eq: zeroed(),
            cq: zeroed(),
            cntr: zeroed(),
            mr: zeroed(),
            wait: zeroed(),
            relay: null_mut(),
            seen: Vec::new(),
        }
    }
}

fn fid_of(fclass: usize, ops: *mut fi_ops) -> fid {
    fid {
        fclass,
        context: null_mut(),
        ops,
    }
}

pub fn close_it(object: *mut fid) -> c_int {
    // SAFETY: the object is wrapped; a closed one is kept by the hook.
    unsafe { (*(*object).ops).close.unwrap()(object) }
}
