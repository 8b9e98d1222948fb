//! The declarations of libucp that [`crate::ucp`] uses, after UCX's published interface, and its
//! functions, found at run time.

#![allow(
    non_camel_case_types,
    reason = "the names are those of the C interface"
)]

#[cfg(test)]
mod layout;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_NOW};
use prov_base::uncancelled::Uncancelled;

/// `ucs_status_t`: an enumeration of one byte.
pub type ucs_status_t = i8;
/// A request, null for success, or an error number as a pointer.
pub type ucs_status_ptr_t = *mut c_void;

macro_rules! opaque {
    ($($name:ident),*) => {
        $(
            /// Only used behind pointers.
            #[repr(C)]
            pub struct $name([u8; 0]);
        )*
    };
}

opaque!(
    ucp_config_t,
    ucp_context,
    ucp_worker,
    ucp_ep,
    ucp_mem,
    ucp_rkey,
    ucp_recv_desc
);

pub const UCS_OK: ucs_status_t = 0;
pub const UCS_INPROGRESS: ucs_status_t = 1;
pub const UCS_ERR_CANCELED: ucs_status_t = -16;
pub const UCS_ERR_LAST: ucs_status_t = -100;

pub const UCP_PARAM_FIELD_FEATURES: u64 = 1 << 0;
pub const UCP_PARAM_FIELD_MT_WORKERS_SHARED: u64 = 1 << 5;
pub const UCP_PARAM_FIELD_ESTIMATED_NUM_EPS: u64 = 1 << 6;
pub const UCP_FEATURE_TAG: u64 = 1 << 0;
pub const UCP_FEATURE_RMA: u64 = 1 << 1;
pub const UCP_WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1 << 0;
pub const UCP_WORKER_PARAM_FIELD_FLAGS: u64 = 1 << 5;
pub const UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK: u64 = 1 << 0;
pub const UCS_THREAD_MODE_SERIALIZED: c_uint = 1;
pub const UCP_EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1 << 0;
pub const UCP_MEM_MAP_PARAM_FIELD_ADDRESS: u64 = 1 << 0;
pub const UCP_MEM_MAP_PARAM_FIELD_LENGTH: u64 = 1 << 1;
pub const UCP_OP_ATTR_FIELD_CALLBACK: u32 = 1 << 1;
pub const UCP_OP_ATTR_FIELD_USER_DATA: u32 = 1 << 2;
pub const UCP_OP_ATTR_FIELD_DATATYPE: u32 = 1 << 3;
pub const UCP_OP_ATTR_FLAG_NO_IMM_CMPL: u32 = 1 << 16;
/// `ucp_dt_make_iov()`: the buffer is an array of `ucp_dt_iov_t`, which has the layout of `iovec`.
pub const UCP_DATATYPE_IOV: u64 = 2;

#[repr(C)]
#[derive(Default)]
pub struct ucp_params_t {
    pub field_mask: u64,
    pub features: u64,
    pub request_size: usize,
    pub request_init: Option<unsafe extern "C" fn(*mut c_void)>,
    pub request_cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
    pub tag_sender_mask: u64,
    pub mt_workers_shared: c_int,
    pub estimated_num_eps: usize,
    pub estimated_num_ppn: usize,
    pub name: usize,
}

#[repr(C)]
pub struct ucp_worker_params_t {
    pub field_mask: u64,
    pub thread_mode: c_uint,
    pub cpu_mask: [u64; 16],
    pub events: c_uint,
    pub user_data: *mut c_void,
    pub event_fd: c_int,
    pub flags: u64,
    pub name: *const c_char,
    pub am_alignment: usize,
    pub client_id: u64,
}

#[repr(C)]
pub struct ucs_sock_addr_t {
    pub addr: *const c_void,
    pub addrlen: u32,
}

#[repr(C)]
pub struct ucp_ep_params_t {
    pub field_mask: u64,
    pub address: *const c_void,
    pub err_mode: c_uint,
    pub err_handler: [*mut c_void; 2],
    pub user_data: *mut c_void,
    pub flags: c_uint,
    pub sockaddr: ucs_sock_addr_t,
    pub conn_request: *mut c_void,
    pub name: *const c_char,
    pub local_sockaddr: ucs_sock_addr_t,
}

#[repr(C)]
pub struct ucp_mem_map_params_t {
    pub field_mask: u64,
    pub address: *mut c_void,
    pub length: usize,
    pub flags: c_uint,
    pub prot: c_uint,
    pub memory_type: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_tag_recv_info_t {
    pub sender_tag: u64,
    pub length: usize,
}

/// The callback of sends and of one-sided operations.
pub type ucp_send_nbx_callback_t = unsafe extern "C" fn(*mut c_void, ucs_status_t, *mut c_void);
/// The callback of receives.
pub type ucp_tag_recv_nbx_callback_t =
    unsafe extern "C" fn(*mut c_void, ucs_status_t, *const ucp_tag_recv_info_t, *mut c_void);

#[repr(C)]
pub union callback {
    pub send: ucp_send_nbx_callback_t,
    pub recv: ucp_tag_recv_nbx_callback_t,
}

#[repr(C)]
pub struct ucp_request_param_t {
    pub op_attr_mask: u32,
    pub flags: u32,
    pub request: *mut c_void,
    pub cb: callback,
    pub datatype: u64,
    pub user_data: *mut c_void,
    pub reply_buffer: *mut c_void,
    pub memory_type: c_uint,
    pub recv_info: *mut ucp_tag_recv_info_t,
    pub memh: *mut ucp_mem,
}

macro_rules! functions {
    ($(fn $function:ident($($arg:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of libucp, and of the libraries that it needs.
        pub struct Functions {
            $(pub $function: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        fn load() -> Result<Functions, libloading::Error> {
            // SAFETY: the library is one of the system's, whose initializers may run in any
            // process.
            let library = unsafe { Library::open(Some("libucp.so.0"), RTLD_NOW) }?;
            let functions = Functions {
                $($function: {
                    let name = concat!(stringify!($function), "\0").as_bytes();
                    // SAFETY: the function has this signature in every version of the library that
                    // exports this name.
                    *unsafe { library.get(name) }?
                },)*
            };
            // The functions are used as long as the process lives.
            std::mem::forget(library);
            Ok(functions)
        }
    };
}

functions! {
    fn ucp_get_version_string() -> *const c_char;
    fn ucs_status_string(ucs_status_t) -> *const c_char;
    fn ucp_config_read(*const c_char, *const c_char, *mut *mut ucp_config_t) -> ucs_status_t;
    fn ucp_config_modify(*mut ucp_config_t, *const c_char, *const c_char) -> ucs_status_t;
    fn ucp_config_release(*mut ucp_config_t);
    fn ucp_init_version(
        c_uint, c_uint, *const ucp_params_t, *const ucp_config_t, *mut *mut ucp_context,
    ) -> ucs_status_t;
    fn ucp_cleanup(*mut ucp_context);
    fn ucp_worker_create(
        *mut ucp_context, *const ucp_worker_params_t, *mut *mut ucp_worker,
    ) -> ucs_status_t;
    fn ucp_worker_destroy(*mut ucp_worker);
    fn ucp_worker_get_address(*mut ucp_worker, *mut *mut c_void, *mut usize) -> ucs_status_t;
    fn ucp_worker_release_address(*mut ucp_worker, *mut c_void);
    fn ucp_worker_progress(*mut ucp_worker) -> c_uint;
    fn ucp_worker_fence(*mut ucp_worker) -> ucs_status_t;
    fn ucp_worker_flush_nbx(*mut ucp_worker, *const ucp_request_param_t) -> ucs_status_ptr_t;
    fn ucp_ep_create(*mut ucp_worker, *const ucp_ep_params_t, *mut *mut ucp_ep) -> ucs_status_t;
    fn ucp_ep_close_nbx(*mut ucp_ep, *const ucp_request_param_t) -> ucs_status_ptr_t;
    fn ucp_ep_flush_nbx(*mut ucp_ep, *const ucp_request_param_t) -> ucs_status_ptr_t;
    fn ucp_ep_rkey_unpack(*mut ucp_ep, *const c_void, *mut *mut ucp_rkey) -> ucs_status_t;
    fn ucp_rkey_destroy(*mut ucp_rkey);
    fn ucp_mem_map(
        *mut ucp_context, *const ucp_mem_map_params_t, *mut *mut ucp_mem,
    ) -> ucs_status_t;
    fn ucp_mem_unmap(*mut ucp_context, *mut ucp_mem) -> ucs_status_t;
    fn ucp_rkey_pack(
        *mut ucp_context, *mut ucp_mem, *mut *mut c_void, *mut usize,
    ) -> ucs_status_t;
    fn ucp_rkey_buffer_release(*mut c_void);
    fn ucp_tag_send_nbx(
        *mut ucp_ep, *const c_void, usize, u64, *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    fn ucp_tag_send_sync_nbx(
        *mut ucp_ep, *const c_void, usize, u64, *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    fn ucp_tag_recv_nbx(
        *mut ucp_worker, *mut c_void, usize, u64, u64, *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    fn ucp_tag_probe_nb(
        *mut ucp_worker, u64, u64, c_int, *mut ucp_tag_recv_info_t,
    ) -> *mut ucp_recv_desc;
    fn ucp_tag_msg_recv_nbx(
        *mut ucp_worker, *mut c_void, usize, *mut ucp_recv_desc, *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    fn ucp_put_nbx(
        *mut ucp_ep, *const c_void, usize, u64, *mut ucp_rkey, *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    fn ucp_get_nbx(
        *mut ucp_ep, *mut c_void, usize, u64, *mut ucp_rkey, *const ucp_request_param_t,
    ) -> ucs_status_ptr_t;
    fn ucp_request_cancel(*mut ucp_worker, *mut c_void);
    fn ucp_request_check_status(*mut c_void) -> ucs_status_t;
    fn ucp_request_free(*mut c_void);
}

/// The functions of libucp, which this process has loaded.
#[derive(Clone, Copy)]
pub struct Libucp(&'static Functions);

impl Libucp {
    /// Returns the library; the first call loads it, and the modules of UCX with it. The error says
    /// why there is none.
    pub fn get() -> Result<Self, &'static str> {
        static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| load().map_err(|error| error.to_string()));
        loaded.as_ref().map(Libucp).map_err(String::as_str)
    }

    /// Returns the functions.
    pub fn functions(self) -> Calls {
        Calls {
            functions: self.0,
            _uncancelled: Uncancelled::begin(),
        }
    }
}

/// The functions, to be called while this lives: they make system calls, which may be cancellation
/// points, so cancellation is disabled.
pub struct Calls {
    functions: &'static Functions,
    _uncancelled: Uncancelled,
}

impl std::ops::Deref for Calls {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        self.functions
    }
}
