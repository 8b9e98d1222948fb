//! Declarations of `<rdma/fi_profile.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::ssize_t;

c_enum! {
    /// Variables of fi_profile(3).
    enum : u32 {
        FI_VAR_UNEXP_MSG_CNT,
        FI_VAR_UNEXP_MSG_QUEUE,
        FI_VAR_MSG_QUEUE_CNT,
        FI_VAR_CONNECTION_CNT,
        FI_VAR_CONN_REQUEST,
        FI_VAR_CONN_ACCEPT,
        FI_VAR_CONN_REJECT,
        FI_VAR_OFI_MEM,
    }
}

c_enum! {
    /// Events of fi_profile(3).
    enum : u32 {
        FI_EVENT_UNEXP_MSG_RECVD,
        FI_EVENT_UNEXP_MSG_MATCHED,
    }
}

c_enum! {
    /// Kinds of types in a profile, fi_profile(3).
    pub enum fi_profile_type: c_uint {
        fi_primitive_type,
        fi_defined_type,
    }
}

/// The type of a variable or event, by `datatype_sel`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_profile_desc_datatype {
    pub primitive: fi_datatype,
    pub defined: fi_type,
}

/// A variable or event of a profile, fi_profile(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_profile_desc {
    pub id: u32,
    pub datatype_sel: fi_profile_type,
    pub datatype: fi_profile_desc_datatype,
    pub flags: u64,
    pub size: usize,
    pub name: *const c_char,
    pub desc: *const c_char,
}

/// Operations of a profile, fi_profile(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_profile_ops {
    pub size: usize,
    pub reset: Option<unsafe extern "C" fn(profile: *mut fid_profile, flags: u64)>,
    pub query_vars: Option<
        unsafe extern "C" fn(
            profile: *mut fid_profile,
            varlist: *mut fi_profile_desc,
            count: *mut usize,
        ) -> ssize_t,
    >,
    pub query_events: Option<
        unsafe extern "C" fn(
            profile: *mut fid_profile,
            eventlist: *mut fi_profile_desc,
            count: *mut usize,
        ) -> ssize_t,
    >,
    pub read_var: Option<
        unsafe extern "C" fn(
            profile: *mut fid_profile,
            var_id: u32,
            data: *mut c_void,
            size: *mut usize,
        ) -> ssize_t,
    >,
    pub reg_callback: Option<
        unsafe extern "C" fn(
            profile: *mut fid_profile,
            event_id: u32,
            callback: Option<
                unsafe extern "C" fn(
                    *mut fid_profile,
                    *mut fi_profile_desc,
                    *mut c_void,
                    usize,
                    *mut c_void,
                ) -> c_int,
            >,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub start_reads: Option<unsafe extern "C" fn(profile: *mut fid_profile, flags: u64)>,
    pub end_reads: Option<unsafe extern "C" fn(profile: *mut fid_profile, flags: u64)>,
}

/// A profile of an object: its counters and events, fi_profile(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_profile {
    pub fid: fid,
    pub ops: *mut fi_profile_ops,
}

zero_is_valid!(
    fi_profile_desc,
    fi_profile_ops,
    fid_profile,
    fi_profile_desc_datatype
);

opaque_debug!(fi_profile_desc_datatype);
