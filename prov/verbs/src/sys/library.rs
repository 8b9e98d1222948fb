//! The functions of the two libraries, found when the provider starts: a machine without RDMA has
//! neither, and loading this provider must not fail there.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ops::Deref;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_NOW};
use prov_base::uncancelled::Uncancelled;

use super::ibverbs::*;
use super::rdmacm::*;

macro_rules! library {
    ($(#[$attr:meta])* $name:ident in $file:literal {
        $(fn $function:ident($($arg:ty),*) $(-> $result:ty)?;)*
        $(optional fn $optional:ident($($oarg:ty),*) $(-> $oresult:ty)?;)*
    }) => {
        $(#[$attr])*
        #[allow(missing_docs)]
        pub struct $name {
            $(pub $function: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
            $(pub $optional: Option<unsafe extern "C" fn($($oarg),*) $(-> $oresult)?>,)*
        }

        impl $name {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: the library is one of the system's, whose initializers may run in any
                // process.
                let library = unsafe { Library::open(Some($file), RTLD_NOW) }?;
                let functions = $name {
                    $($function: {
                        let name = concat!(stringify!($function), "\0").as_bytes();
                        // SAFETY: the function has this signature in every version of the library
                        // that exports this name.
                        *unsafe { library.get(name) }?
                    },)*
                    $($optional: {
                        let name = concat!(stringify!($optional), "\0").as_bytes();
                        // SAFETY: the function has this signature in every version of the library
                        // that exports this name.
                        unsafe { library.get(name) }.ok().map(|found| *found)
                    },)*
                };
                // The functions are used as long as the process lives.
                std::mem::forget(library);
                Ok(functions)
            }

            /// Returns a table whose functions exist but must not be called.
            #[cfg(test)]
            pub fn absent() -> Self {
                $name {
                    $($function: {
                        unsafe extern "C" fn absent($(_: $arg),*) $(-> $result)? {
                            unreachable!(stringify!($function))
                        }
                        absent
                    },)*
                    $($optional: None,)*
                }
            }
        }
    };
}

library! {
    /// libibverbs.
    Ibverbs in "libibverbs.so.1" {
        fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        fn ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        fn ibv_query_pkey(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
        fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
        fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
        fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
        fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
        fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
        fn ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int)
            -> *mut ibv_cq;
        fn ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
        fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
        fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        fn ibv_ack_cq_events(*mut ibv_cq, c_uint);
        fn ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
        fn ibv_ack_async_event(*mut ibv_async_event);
        fn ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        fn ibv_destroy_srq(*mut ibv_srq) -> c_int;
        fn ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        fn ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        fn ibv_destroy_qp(*mut ibv_qp) -> c_int;
        fn ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
        fn ibv_destroy_ah(*mut ibv_ah) -> c_int;
        fn ibv_wc_status_str(c_uint) -> *const c_char;
        fn ibv_fork_init() -> c_int;
        optional fn ibv_reg_dmabuf_mr(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
    }
}

library! {
    /// librdmacm.
    Rdmacm in "librdmacm.so.1" {
        fn rdma_get_devices(*mut c_int) -> *mut *mut ibv_context;
        fn rdma_create_event_channel() -> *mut rdma_event_channel;
        fn rdma_destroy_event_channel(*mut rdma_event_channel);
        fn rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint)
            -> c_int;
        fn rdma_destroy_id(*mut rdma_cm_id) -> c_int;
        fn rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        fn rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int)
            -> c_int;
        fn rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        fn rdma_establish(*mut rdma_cm_id) -> c_int;
        fn rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        fn rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        fn rdma_disconnect(*mut rdma_cm_id) -> c_int;
        fn rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        fn rdma_init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
        fn rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        fn rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    }
}

/// Both libraries.
pub struct Libraries {
    verbs: Ibverbs,
    cm: Rdmacm,
}

/// The functions of a library, to be called while this lives. They may be cancellation points, as
/// they make system calls; cancellation is disabled.
pub struct Functions<'l, L> {
    library: &'l L,
    _uncancelled: Uncancelled,
}

impl<L> Deref for Functions<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        self.library
    }
}

impl Libraries {
    /// Returns the libraries of a simulated device.
    #[cfg(test)]
    pub fn new(verbs: Ibverbs, cm: Rdmacm) -> Self {
        Libraries { verbs, cm }
    }

    /// The functions of libibverbs.
    pub fn verbs(&self) -> Functions<'_, Ibverbs> {
        Functions {
            library: &self.verbs,
            _uncancelled: Uncancelled::begin(),
        }
    }

    /// The functions of librdmacm.
    pub fn cm(&self) -> Functions<'_, Rdmacm> {
        Functions {
            library: &self.cm,
            _uncancelled: Uncancelled::begin(),
        }
    }
}

/// Returns the libraries, if this machine has both. The first call loads them, and logs what is
/// missing.
pub fn libraries() -> Option<&'static Libraries> {
    static LIBRARIES: OnceLock<Option<Libraries>> = OnceLock::new();
    let load = || {
        Ok::<_, libloading::Error>(Libraries {
            verbs: Ibverbs::load()?,
            cm: Rdmacm::load()?,
        })
    };
    LIBRARIES
        .get_or_init(|| {
            load()
                .inspect_err(
                    |error| log::info!(target: crate::LOG.core, "no RDMA libraries: {error}"),
                )
                .ok()
        })
        .as_ref()
}
