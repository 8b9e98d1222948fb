//! Devices.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use prov_base::errno::{Errno, Result};

use super::nic::{ETHERNET, mtu_of};
use super::numbered;
use crate::sys::ibverbs::*;
use crate::sys::library::{Libraries, libraries};
use crate::sys::xrc::IBV_DEVICE_XRC;

/// An open device. librdmacm opens each device once and never closes it, and its connections can
/// only be used with objects of these.
#[derive(Clone, Copy)]
pub struct Context {
    pub(super) context: NonNull<ibv_context>,
    pub(super) libraries: &'static Libraries,
}

// SAFETY: libibverbs and librdmacm permit calls for one device from several threads, and the device
// is never closed.
unsafe impl Send for Context {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for Context {}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        self.context == other.context
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// The limits and capabilities of a device.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Limits {
    /// Number of ports, which are numbered from 1 on.
    pub ports: u8,
    pub pairs: usize,
    pub requests_per_pair: usize,
    pub pieces: usize,
    pub pieces_per_read: usize,
    pub completion_queues: usize,
    pub completions_per_queue: usize,
    pub regions: usize,
    pub shared_queues: usize,
    pub requests_per_shared_queue: usize,
    pub pieces_per_shared_receive: usize,
    /// Whether it supports XRC, and its library has the calls for that.
    pub has_xrc: bool,
    /// Whether it supports 8-byte atomic operations.
    pub has_atomics: bool,
    /// Largest number of reads and atomic operations of peers that are in progress at the same
    /// time; below, the number of its own.
    pub reads_as_target: u8,
    pub reads_as_initiator: u8,
}

/// A port of a device.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Port {
    pub is_active: bool,
    pub lid: u16,
    /// Largest number of bytes of a message of a connection.
    pub longest_message: usize,
    /// Largest number of bytes of a datagram.
    pub mtu: usize,
    pub service_level: u8,
    /// Whether the link layer is Ethernet, and not InfiniBand.
    pub is_ethernet: bool,
}

/// A port's address: 16 bytes, the subnet prefix first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

/// Returns the devices that connections can use; none on a machine without RDMA. Determined once.
pub fn contexts() -> &'static [Context] {
    static CONTEXTS: OnceLock<Vec<Context>> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let Some(libraries) = libraries() else {
            return Vec::new();
        };
        if !FORK_UNSAFE.load(Ordering::Relaxed) {
            fork_init(libraries);
        }
        open_all(libraries)
    })
}

fn open_all(libraries: &'static Libraries) -> Vec<Context> {
    let mut count: c_int = 0;
    // SAFETY: the list has `count` devices and ends with a null pointer. It is never freed, since
    // the library could then close the devices.
    unsafe {
        let list = (libraries.cm().rdma_get_devices)(&mut count);
        if list.is_null() {
            let error = Errno::last_os_error();
            log::info!(target: crate::LOG.core, "no RDMA devices: {error}");
            return Vec::new();
        }
        let devices = std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0));
        let open = devices.iter().filter_map(|&device| NonNull::new(device));
        open.map(|context| Context { context, libraries }).collect()
    }
}

/// Disables the protection that makes fork(2) safe (`FI_FORK_UNSAFE`). To be called before the
/// devices are searched.
pub fn allow_unsafe_fork() {
    FORK_UNSAFE.store(true, Ordering::Relaxed);
}

static FORK_UNSAFE: AtomicBool = AtomicBool::new(false);

/// Makes the library keep memory that is pinned for devices out of child processes
/// (ibv_fork_init(3)).
fn fork_init(libraries: &Libraries) {
    // SAFETY: the function takes no arguments, and this call precedes the first registration of
    // memory, as the function demands.
    if let Err(error) = numbered(unsafe { (libraries.verbs().ibv_fork_init)() }) {
        log::warn!(target: crate::LOG.core, "fork(2) is not safe: {error}");
    }
}

impl Context {
    /// Returns the device that the library calls `context`.
    pub(super) fn find(context: *mut ibv_context) -> Option<Self> {
        let is_it = |known: &&Context| known.as_ptr() == context;
        contexts().iter().find(is_it).copied()
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// Returns the functions of its data path.
    pub(super) fn ops(&self) -> &'static ibv_context_ops {
        // SAFETY: devices are never closed, and the table of functions does not change.
        unsafe { &(*self.context.as_ptr()).ops }
    }

    fn device(&self) -> *mut ibv_device {
        // SAFETY: devices are never closed, so that the pointer stays valid.
        unsafe { (*self.context.as_ptr()).device }
    }

    /// Returns the system's name of the device, such as `mlx5_0`.
    pub fn name(&self) -> String {
        // SAFETY: the device's structure, which is never freed, contains a terminated name.
        let name = unsafe { CStr::from_ptr((&raw const (*self.device()).name).cast()) };
        name.to_string_lossy().into_owned()
    }

    /// Whether it uses iWARP.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: devices are never closed, so that the structure stays valid.
        unsafe { (*self.device()).transport_type == IBV_TRANSPORT_IWARP }
    }

    /// Queries the library for its attributes.
    pub(super) fn query(&self) -> Result<ibv_device_attr> {
        let mut found = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: `found` has the size of the structure, which consists of integers and which the
        // function fills if it succeeds.
        unsafe {
            numbered((self.libraries.verbs().ibv_query_device)(
                self.as_ptr(),
                found.as_mut_ptr(),
            ))?;
            Ok(found.assume_init())
        }
    }

    /// Queries the library for the attributes of a port.
    pub(super) fn query_port(&self, number: u8) -> Result<ibv_port_attr> {
        let mut found = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: `found` has the size of the structure, which consists of integers; the function
        // fills all but the last members, which are zero before.
        unsafe {
            numbered((self.libraries.verbs().ibv_query_port)(
                self.as_ptr(),
                number,
                found.as_mut_ptr(),
            ))?;
            Ok(found.assume_init())
        }
    }

    /// Returns its limits and capabilities.
    pub fn limits(&self) -> Result<Limits> {
        let attr = self.query()?;
        let size = |value: c_int| usize::try_from(value).unwrap_or(0);
        let byte = |value: c_int| u8::try_from(value.max(0)).unwrap_or(u8::MAX);
        Ok(Limits {
            ports: attr.phys_port_cnt,
            pairs: size(attr.max_qp),
            requests_per_pair: size(attr.max_qp_wr),
            pieces: size(attr.max_sge),
            pieces_per_read: size(attr.max_sge_rd),
            completion_queues: size(attr.max_cq),
            completions_per_queue: size(attr.max_cqe),
            regions: size(attr.max_mr),
            shared_queues: size(attr.max_srq),
            requests_per_shared_queue: size(attr.max_srq_wr),
            pieces_per_shared_receive: size(attr.max_srq_sge),
            has_xrc: attr.device_cap_flags & IBV_DEVICE_XRC != 0
                && attr.max_srq > 0
                && !self.is_iwarp()
                && self.has_xrc_calls(),
            has_atomics: attr.atomic_cap != IBV_ATOMIC_NONE,
            reads_as_target: byte(attr.max_qp_rd_atom),
            reads_as_initiator: byte(attr.max_qp_init_rd_atom),
        })
    }

    /// Returns a port.
    pub fn port(&self, number: u8) -> Result<Port> {
        let attr = self.query_port(number)?;
        Ok(Port {
            is_active: attr.state == IBV_PORT_ACTIVE,
            lid: attr.lid,
            longest_message: attr.max_msg_sz as usize,
            mtu: mtu_of(&attr),
            service_level: attr.sm_sl,
            is_ethernet: attr.link_layer == ETHERNET,
        })
    }

    /// Returns one of the addresses of a port.
    pub fn gid(&self, port: u8, index: c_int) -> Result<Gid> {
        let mut found = ibv_gid::default();
        // SAFETY: `found` is a writable structure of the type that the function fills.
        numbered(unsafe {
            (self.libraries.verbs().ibv_query_gid)(self.as_ptr(), port, index, &mut found)
        })?;
        Ok(Gid(found.raw))
    }

    /// Returns one of the partition keys of a port.
    pub fn partition_key(&self, port: u8, index: c_int) -> Result<u16> {
        let mut found = 0u16;
        // SAFETY: `found` is a writable number.
        numbered(unsafe {
            (self.libraries.verbs().ibv_query_pkey)(self.as_ptr(), port, index, &mut found)
        })?;
        Ok(u16::from_be(found))
    }
}

impl Gid {
    /// Returns the part that is the same for all ports of a subnet.
    #[allow(clippy::expect_used, reason = "16 bytes begin with 8")]
    pub fn subnet_prefix(&self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().expect("8 of 16 bytes"))
    }
}

/// Returns the library's text for the status of a work request (ibv_wc_status_str(3)).
pub fn status_text(status: u32) -> Option<&'static CStr> {
    let libraries = libraries()?;
    // SAFETY: the function accepts all numbers, and returns null or a constant, terminated text.
    unsafe {
        let text = (libraries.verbs().ibv_wc_status_str)(status);
        (!text.is_null()).then(|| CStr::from_ptr(text))
    }
}
