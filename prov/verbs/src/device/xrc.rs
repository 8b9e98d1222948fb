//! XRC: sending and receiving are separate. A queue pair that only sends, the initiator, reaches
//! all receive queues of its counterpart, the target, by their numbers; targets are in a domain
//! that processes may share.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use rustix::fs::{Mode, OFlags, open};

use super::queue_pair::States;
use super::{CompletionQueue, Context, ProtectionDomain, numbered};
use crate::sys::ibverbs::*;
use crate::sys::xrc::*;

/// The XRC functions of a device.
#[derive(Clone, Copy)]
struct Calls {
    open_qp: unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp,
    create_qp_ex: unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    get_srq_num: unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int,
    create_srq_ex:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
    open_xrcd: unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd,
    close_xrcd: unsafe extern "C" fn(*mut ibv_xrcd) -> c_int,
}

impl Context {
    /// Whether its library has all functions for XRC.
    pub fn has_xrc_calls(&self) -> bool {
        self.xrc_calls().is_some()
    }

    fn xrc_calls(&self) -> Option<Calls> {
        // SAFETY: devices are never closed, so that the pointer stays valid.
        if unsafe { (*self.as_ptr()).abi_compat }.addr() != EXTENDED {
            return None;
        }
        let table = self
            .as_ptr()
            .wrapping_byte_sub(std::mem::offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        // SAFETY: libibverbs specifies that the device's structure is the last member of this one,
        // whose last `sz` bytes exist; `sz` itself is always among these.
        let sz = unsafe { (*table).sz };
        if sz < size_of::<verbs_context>() {
            return None;
        }
        // SAFETY: the whole structure exists, as was just checked, and does not change.
        let table = unsafe { &*table };
        Some(Calls {
            open_qp: table.open_qp?,
            create_qp_ex: table.create_qp_ex?,
            get_srq_num: table.get_srq_num?,
            create_srq_ex: table.create_srq_ex?,
            open_xrcd: table.open_xrcd?,
            close_xrcd: table.close_xrcd?,
        })
    }
}

/// A domain of targets and receive queues.
pub struct XrcDomain {
    xrcd: NonNull<ibv_xrcd>,
    calls: Calls,
    context: Context,
    /// Only the process that created the object destroys it.
    process: Process,
    /// Processes that have opened the same file share the domain.
    _file: Option<OwnedFd>,
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for XrcDomain {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for XrcDomain {}

impl XrcDomain {
    /// Opens the domain of all processes that name this file, which is created if it does not
    /// exist; without a file, a domain of its own. `-FI_ENOSYS` if the library does not support it.
    pub fn open(context: Context, path: Option<&Path>) -> Result<Arc<Self>> {
        let calls = context.xrc_calls().ok_or(Errno::ENOSYS)?;
        let flags = OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = path.map(|path| open(path, flags, mode)).transpose()?;
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.as_ref().map_or(-1, |file| file.as_raw_fd()),
            oflags: libc::O_CREAT,
        };
        // SAFETY: the device and the file are open, and `attr` is valid during the call.
        let xrcd = unsafe { (calls.open_xrcd)(context.as_ptr(), &mut attr) };
        Ok(Arc::new(XrcDomain {
            xrcd: NonNull::new(xrcd).ok_or_else(Errno::last_os_error)?,
            calls,
            context,
            process: Process::current(),
            _file: file,
        }))
    }

    /// Creates a shared receive queue, which completes at `queue`; returns it with its number.
    pub(super) fn receive_queue(
        &self,
        pd: &ProtectionDomain,
        queue: &CompletionQueue,
        requests: u32,
        pieces: u32,
    ) -> Result<(NonNull<ibv_srq>, u32)> {
        let mut attr = ibv_srq_init_attr_ex {
            srq_context: null_mut(),
            max_wr: requests,
            max_sge: pieces,
            srq_limit: 0,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE
                | IBV_SRQ_INIT_ATTR_PD
                | IBV_SRQ_INIT_ATTR_XRCD
                | IBV_SRQ_INIT_ATTR_CQ,
            srq_type: IBV_SRQT_XRC,
            pd: pd.as_ptr(),
            xrcd: self.xrcd.as_ptr(),
            cq: queue.as_ptr(),
            tm_cap: [0; 2],
        };
        // SAFETY: the objects in the attributes are open, and the caller keeps them open.
        let srq = unsafe { (self.calls.create_srq_ex)(self.context.as_ptr(), &mut attr) };
        let srq = NonNull::new(srq).ok_or_else(Errno::last_os_error)?;
        let mut number = 0;
        // SAFETY: the queue was just created, and `number` is writable.
        let told = numbered(unsafe { (self.calls.get_srq_num)(srq.as_ptr(), &mut number) });
        if let Err(error) = told.and(is_number(number)) {
            // SAFETY: the queue was just created, and has no other users.
            unsafe { (self.context.libraries.verbs().ibv_destroy_srq)(srq.as_ptr()) };
            return Err(error);
        }
        Ok((srq, number))
    }
}

impl Drop for XrcDomain {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the object is open, and all objects that were created in it are closed, since
        // each held a reference.
        let outcome = unsafe { (self.calls.close_xrcd)(self.xrcd.as_ptr()) };
        if let Err(error) = numbered(outcome) {
            log::warn!(target: crate::LOG.domain, "ibv_close_xrcd: {error}");
        }
    }
}

/// Checks a number of a queue pair or shared receive queue, which has 24 bits. `-FI_EPROTO` for
/// others.
pub fn is_number(number: u32) -> Result {
    match number >> 24 {
        0 => Ok(()),
        _ => Err(Errno::EPROTO),
    }
}

/// A queue pair that only receives, for all receive queues of its domain.
pub struct XrcTarget {
    qp: NonNull<ibv_qp>,
    number: u32,
    /// Only the process that created the object destroys it.
    process: Process,
    xrcd: Arc<XrcDomain>,
    _pd: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for XrcTarget {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for XrcTarget {}

impl XrcTarget {
    /// Creates a target in its initial state.
    pub fn new(pd: &Arc<ProtectionDomain>, xrcd: &Arc<XrcDomain>) -> Result<Self> {
        // SAFETY: the structure consists of integers, unions of these and pointers, for which zero
        // is a valid value.
        let mut attr: ibv_qp_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.qp_type = IBV_QPT_XRC_RECV;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
        attr.pd = pd.as_ptr();
        attr.xrcd = xrcd.xrcd.as_ptr();
        // SAFETY: the objects in the attributes are open, and the result keeps them open.
        let qp = unsafe { (xrcd.calls.create_qp_ex)(xrcd.context.as_ptr(), &mut attr) };
        Self::of(qp, pd, xrcd)
    }

    /// Opens the target with this number, which exists and is ready as long as any process has it
    /// open.
    pub fn open(pd: &Arc<ProtectionDomain>, xrcd: &Arc<XrcDomain>, number: u32) -> Result<Self> {
        let mut attr = ibv_qp_open_attr {
            comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
            qp_num: number,
            xrcd: xrcd.xrcd.as_ptr(),
            qp_context: null_mut(),
            qp_type: IBV_QPT_XRC_RECV,
        };
        // SAFETY: the objects in the attributes are open, and the result keeps them open.
        let qp = unsafe { (xrcd.calls.open_qp)(xrcd.context.as_ptr(), &mut attr) };
        Self::of(qp, pd, xrcd)
    }

    fn of(qp: *mut ibv_qp, pd: &Arc<ProtectionDomain>, xrcd: &Arc<XrcDomain>) -> Result<Self> {
        let qp = NonNull::new(qp).ok_or_else(Errno::last_os_error)?;
        Ok(XrcTarget {
            qp,
            // SAFETY: the queue pair was just opened, and its number does not change.
            number: unsafe { (*qp.as_ptr()).qp_num },
            process: Process::current(),
            xrcd: xrcd.clone(),
            _pd: pd.clone(),
        })
    }

    /// Returns its number on the device.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl States for XrcTarget {
    fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> Result {
        let verbs = self.xrcd.context.libraries.verbs();
        // SAFETY: the queue pair is open until it is dropped, and the attributes are a valid
        // structure, which is used only during the call.
        numbered(unsafe { (verbs.ibv_modify_qp)(self.qp.as_ptr(), attr, mask) })
    }

    fn lacks(&self) -> c_int {
        IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
    }
}

impl Drop for XrcTarget {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let verbs = self.xrcd.context.libraries.verbs();
        // SAFETY: the queue pair is open, and is closed once, by its owner.
        if let Err(error) = numbered(unsafe { (verbs.ibv_destroy_qp)(self.qp.as_ptr()) }) {
            log::warn!(target: crate::LOG.ep_ctrl, "ibv_destroy_qp: {error}");
        }
    }
}
