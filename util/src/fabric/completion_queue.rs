//! Completion queues, fi_cq(3).

use std::ptr;
use std::rc::Rc;

use fabric_abi::{
    FI_CQ_FORMAT_CONTEXT, FI_EAGAIN, FI_EAVAIL, FI_WAIT_NONE, fi_cq_attr, fi_cq_entry,
    fi_cq_err_entry, fid_cq,
};

use super::error::{check, explain};
use super::object::Object;
use super::{Domain, Failure, Result};

/// A completion queue that is only polled.
pub struct CompletionQueue {
    object: Object<fid_cq>,
    /// Closed after the queue.
    _domain: Rc<Domain>,
}

impl CompletionQueue {
    /// Opens a queue for `size` completions.
    pub fn open(domain: &Rc<Domain>, size: usize) -> Result<Rc<CompletionQueue>> {
        let mut attr = fi_cq_attr {
            size,
            format: FI_CQ_FORMAT_CONTEXT,
            wait_obj: FI_WAIT_NONE,
            ..Default::default()
        };
        let parent = domain.as_ptr();
        // SAFETY: the domain is open, the attributes are valid, and the location of the object is
        // writable.
        let object = unsafe {
            Object::open("fi_cq_open", |place| {
                call_slot!(
                    parent,
                    ops,
                    cq_open,
                    parent,
                    &mut attr,
                    place,
                    ptr::null_mut()
                )
            })
        }?;
        Ok(Rc::new(CompletionQueue {
            object,
            _domain: Rc::clone(domain),
        }))
    }

    /// Returns whether an operation has completed since the last call. A failed one is an error,
    /// and is explained on stderr.
    pub fn poll(&self) -> Result<bool> {
        let cq = self.object.as_ptr();
        let mut entry = fi_cq_entry::default();
        // SAFETY: the queue is open, and `entry` is one entry of its format.
        let returned = unsafe { call_slot!(cq, ops, read, cq, (&raw mut entry).cast(), 1) };
        match check("fi_cq_read", returned) {
            Ok(count) => Ok(count > 0),
            Err(failure) if failure.code == FI_EAGAIN => Ok(false),
            Err(failure) if failure.code == FI_EAVAIL => Err(self.read_error()),
            Err(failure) => Err(failure),
        }
    }

    fn read_error(&self) -> Failure {
        let cq = self.object.as_ptr();
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open, and `entry` is writable.
        let returned = unsafe { call_slot!(cq, ops, readerr, cq, &mut entry, 0) };
        if let Err(failure) = check("fi_cq_readerr", returned) {
            return failure;
        }
        // SAFETY: the queue is open, the error's data is what it returned, and the buffer may be
        // null.
        let text = unsafe {
            (*(*cq).ops).strerror.map_or(ptr::null(), |strerror| {
                strerror(cq, entry.prov_errno, entry.err_data, ptr::null_mut(), 0)
            })
        };
        // SAFETY: the text is null, or a terminated text of the provider.
        unsafe { explain("completion", text) };
        Failure {
            call: "operation",
            code: entry.err,
        }
    }

    pub(super) fn as_ptr(&self) -> *mut fid_cq {
        self.object.as_ptr()
    }
}
