//! Declarations of `<rdma/fi_trigger.h>`.

use crate::*;
use core::ffi::{c_int, c_uint, c_void};

c_enum! {
    /// Deferred operations, fi_trigger(3).
    pub enum fi_op_type: c_uint {
        FI_OP_RECV,
        FI_OP_SEND,
        FI_OP_TRECV,
        FI_OP_TSEND,
        FI_OP_READ,
        FI_OP_WRITE,
        FI_OP_ATOMIC,
        FI_OP_FETCH_ATOMIC,
        FI_OP_COMPARE_ATOMIC,
        FI_OP_CNTR_SET,
        FI_OP_CNTR_ADD,
    }
}

c_enum! {
    /// Events that trigger an operation, fi_trigger(3).
    pub enum fi_trigger_event: c_uint {
        FI_TRIGGER_THRESHOLD,
        FI_TRIGGER_XPU,
    }
}

/// The deferred operation, by `op_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_deferred_work_op {
    pub msg: *mut fi_op_msg,
    pub tagged: *mut fi_op_tagged,
    pub rma: *mut fi_op_rma,
    pub atomic: *mut fi_op_atomic,
    pub fetch_atomic: *mut fi_op_fetch_atomic,
    pub compare_atomic: *mut fi_op_compare_atomic,
    pub cntr: *mut fi_op_cntr,
}

/// An operation that starts when a counter reaches its threshold, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_deferred_work {
    pub context: fi_context2,
    pub threshold: u64,
    pub triggering_cntr: *mut fid_cntr,
    pub completion_cntr: *mut fid_cntr,
    pub op_type: fi_op_type,
    pub op: fi_deferred_work_op,
}

/// A deferred atomic operation, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub flags: u64,
}

/// A deferred counter update, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_cntr {
    pub cntr: *mut fid_cntr,
    pub value: u64,
}

/// A deferred compare operation, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_compare_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub fetch: fi_msg_fetch,
    pub compare: fi_msg_compare,
    pub flags: u64,
}

/// A deferred fetching operation, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_fetch_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub fetch: fi_msg_fetch,
    pub flags: u64,
}

/// A deferred send or receive, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_msg {
    pub ep: *mut fid_ep,
    pub msg: fi_msg,
    pub flags: u64,
}

/// A deferred remote read or write, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_rma {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_rma,
    pub flags: u64,
}

/// A deferred tagged send or receive, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_op_tagged {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_tagged,
    pub flags: u64,
}

/// The counter value that triggers an operation, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_trigger_threshold {
    pub cntr: *mut fid_cntr,
    pub threshold: usize,
}

/// A value of the type `datatype`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_trigger_var_value {
    pub val8: u8,
    pub val16: u16,
    pub val32: u32,
    pub val64: u64,
    pub data: *mut u8,
}

/// A memory write that triggers an operation from an accelerator, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_trigger_var {
    pub datatype: fi_datatype,
    pub count: c_int,
    pub addr: *mut c_void,
    pub value: fi_trigger_var_value,
}

/// The device that triggers an operation, by `iface`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_trigger_xpu_device {
    pub reserved: u64,
    pub cuda: c_int,
    pub ze: c_int,
}

/// The memory writes by which an accelerator triggers an operation, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_trigger_xpu {
    pub count: c_int,
    pub iface: fi_hmem_iface,
    pub device: fi_trigger_xpu_device,
    pub var: *mut fi_trigger_var,
}

/// The condition that triggers the operation, by `event_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_triggered_context_trigger {
    pub threshold: fi_trigger_threshold,
    pub xpu: fi_trigger_xpu,
    pub internal: [*mut c_void; 3],
}

/// The context of a triggered operation, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_triggered_context {
    pub event_type: fi_trigger_event,
    pub trigger: fi_triggered_context_trigger,
}

/// The condition that triggers the operation, by `event_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_triggered_context2_trigger {
    pub threshold: fi_trigger_threshold,
    pub xpu: fi_trigger_xpu,
    pub internal: [*mut c_void; 7],
}

/// The context of a triggered operation in mode `FI_CONTEXT2`, fi_trigger(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_triggered_context2 {
    pub event_type: fi_trigger_event,
    pub trigger: fi_triggered_context2_trigger,
}

zero_is_valid!(
    fi_deferred_work,
    fi_op_atomic,
    fi_op_cntr,
    fi_op_compare_atomic,
    fi_op_fetch_atomic,
    fi_op_msg,
    fi_op_rma,
    fi_op_tagged,
    fi_trigger_threshold,
    fi_trigger_var,
    fi_trigger_xpu,
    fi_triggered_context,
    fi_triggered_context2,
    fi_deferred_work_op,
    fi_trigger_var_value,
    fi_trigger_xpu_device,
    fi_triggered_context_trigger,
    fi_triggered_context2_trigger
);

opaque_debug!(
    fi_deferred_work_op,
    fi_trigger_var_value,
    fi_trigger_xpu_device,
    fi_triggered_context_trigger,
    fi_triggered_context2_trigger
);
