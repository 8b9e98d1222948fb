//! The functions of libze_loader.so.1, with a safe face.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use prov_base::errno::{Errno, Result};

use super::super::library::library;
use super::super::staged::{Outcome, Pinned};
use super::super::{LOG, Owner};

/// `ze_result_t`
type Status = u32;
/// `ZE_RESULT_SUCCESS`
const SUCCESS: Status = 0;
/// `ZE_RESULT_NOT_READY`
const NOT_READY: Status = 1;
/// `ZE_INIT_FLAG_GPU_ONLY`
const GPU_ONLY: u32 = 1;
/// `ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS`
const ASYNCHRONOUS: u32 = 2;
/// `ZE_EVENT_POOL_FLAG_HOST_VISIBLE`
const HOST_VISIBLE: u32 = 1;
/// `ZE_EVENT_SCOPE_FLAG_HOST`
const HOST_SCOPE: u32 = 4;

// Values of `ze_memory_type_t`.
const OF_HOST: u32 = 1;
const OF_DEVICE: u32 = 2;
const SHARED: u32 = 3;

// Values of `ze_structure_type_t`.
const CONTEXT: u32 = 0xd;
const COMMAND_QUEUE: u32 = 0xe;
const EVENT_POOL: u32 = 0x10;
const EVENT: u32 = 0x11;
const HOST_MEMORY: u32 = 0x16;
const MEMORY_PROPERTIES: u32 = 0x17;

/// `ze_context_desc_t` and `ze_host_mem_alloc_desc_t`
#[repr(C)]
pub struct Plain {
    kind: u32,
    next: *const c_void,
    flags: u32,
}

/// `ze_command_queue_desc_t`
#[repr(C)]
pub struct QueueDescription {
    kind: u32,
    next: *const c_void,
    ordinal: u32,
    index: u32,
    flags: u32,
    mode: u32,
    priority: u32,
}

/// `ze_event_pool_desc_t`
#[repr(C)]
pub struct PoolDescription {
    kind: u32,
    next: *const c_void,
    flags: u32,
    count: u32,
}

/// `ze_event_desc_t`
#[repr(C)]
pub struct EventDescription {
    kind: u32,
    next: *const c_void,
    index: u32,
    signal: u32,
    wait: u32,
}

/// `ze_memory_allocation_properties_t`
#[repr(C)]
pub struct Properties {
    kind: u32,
    next: *mut c_void,
    memory: u32,
    id: u64,
    page: u64,
}

library! {
    /// The loader.
    Functions in "libze_loader.so.1" {
        init as "zeInit"(u32);
        drivers as "zeDriverGet"(*mut u32, *mut *mut c_void);
        devices as "zeDeviceGet"(*mut c_void, *mut u32, *mut *mut c_void);
        context as "zeContextCreate"(*mut c_void, *const Plain, *mut *mut c_void);
        properties as "zeMemGetAllocProperties"(
            *mut c_void, *const c_void, *mut Properties, *mut *mut c_void
        );
        host_alloc as "zeMemAllocHost"(
            *mut c_void, *const Plain, usize, usize, *mut *mut c_void
        );
        list as "zeCommandListCreateImmediate"(
            *mut c_void, *mut c_void, *const QueueDescription, *mut *mut c_void
        );
        pool as "zeEventPoolCreate"(
            *mut c_void, *const PoolDescription, u32, *mut *mut c_void, *mut *mut c_void
        );
        event as "zeEventCreate"(*mut c_void, *const EventDescription, *mut *mut c_void);
        copy as "zeCommandListAppendMemoryCopy"(
            *mut c_void, *mut c_void, *const c_void, usize, *mut c_void, u32, *mut *mut c_void
        );
        query as "zeEventQueryStatus"(*mut c_void);
        reset as "zeEventHostReset"(*mut c_void);
    } -> Status
}

/// A device with a context of its driver, which exist as long as the process.
#[derive(Clone, Copy)]
pub struct Gpu {
    context: *mut c_void,
    device: *mut c_void,
}

// SAFETY: contexts and devices may be used by any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above; the value does not change.
unsafe impl Sync for Gpu {}

/// A list for one copy at a time, and the event behind the copy. Both exist as long as the process.
struct Lane {
    device: *mut c_void,
    list: *mut c_void,
    event: *mut c_void,
}

// SAFETY: a list and an event may be used by any thread, one at a time.
unsafe impl Send for Lane {}
// SAFETY: through a shared reference nothing is done.
unsafe impl Sync for Lane {}

struct Inner {
    functions: Functions,
    engine: (u32, u32),
    /// Lanes that no copy uses.
    idle: Mutex<Vec<Lane>>,
}

/// Lanes that are kept for later copies.
const IDLE: usize = 64;

/// The loader with its drivers.
pub struct Loader(Arc<Inner>);

/// Why a driver has refused a call.
pub struct Refused(&'static str, Status);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: status {:#x}", self.0, self.1)
    }
}

fn check(call: &'static str, status: Status) -> std::result::Result<(), Refused> {
    match status {
        SUCCESS => Ok(()),
        status => Err(Refused(call, status)),
    }
}

/// Logs a refusal.
fn error(refused: Refused) -> Errno {
    prov_base::warn_again!(target: LOG, "Level Zero: {refused}");
    Errno::EIO
}

/// A copy that was begun.
pub struct Begun {
    loader: Arc<Inner>,
    /// `None` once it has been made or has failed.
    lane: Option<Lane>,
}

impl Outcome for Begun {
    fn outcome(&mut self) -> Option<Result> {
        let Some(lane) = &self.lane else {
            return Some(Ok(()));
        };
        // SAFETY: the event exists.
        let status = unsafe { (self.loader.functions.query)(lane.event) };
        if status == NOT_READY {
            return None;
        }
        let lane = self.lane.take()?;
        if let Err(refused) = check("zeEventQueryStatus", status) {
            return Some(Err(error(refused)));
        }
        let idle = self.loader.idle.lock();
        let mut idle = idle.unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(lane);
        }
        Some(Ok(()))
    }
}

impl Loader {
    /// Loads the library; copies are made by the group of engines with this number, and the one of it
    /// with this index.
    pub fn load(engine: (u32, u32)) -> std::result::Result<Self, libloading::Error> {
        Ok(Loader(Arc::new(Inner {
            functions: Functions::load()?,
            engine,
            idle: Mutex::default(),
        })))
    }

    /// Starts the drivers; returns their devices.
    pub fn start(&self) -> std::result::Result<Vec<Gpu>, Refused> {
        let functions = &self.0.functions;
        // SAFETY: the flag is one that exists.
        check("zeInit", unsafe { (functions.init)(GPU_ONLY) })?;
        // SAFETY: the list has as many places as the function is told.
        let drivers = listed("zeDriverGet", |count, list| unsafe {
            (functions.drivers)(count, list)
        })?;
        let mut all = Vec::new();
        for driver in drivers {
            let description = Plain {
                kind: CONTEXT,
                next: null(),
                flags: 0,
            };
            let mut context = null_mut();
            // SAFETY: the driver is one that was returned, and the place one for the result.
            let created =
                unsafe { (functions.context)(driver, &raw const description, &raw mut context) };
            check("zeContextCreate", created)?;
            // SAFETY: as for the drivers.
            let devices = listed("zeDeviceGet", |count, list| unsafe {
                (functions.devices)(driver, count, list)
            })?;
            all.extend(devices.iter().map(|&device| Gpu { context, device }));
        }
        Ok(all)
    }

    /// Returns whose memory an address is.
    pub fn owner(&self, gpus: &[Gpu], address: usize) -> Owner {
        for (at, gpu) in gpus.iter().enumerate() {
            let mut properties = Properties {
                kind: MEMORY_PROPERTIES,
                next: null_mut(),
                memory: 0,
                id: 0,
                page: 0,
            };
            let mut device = null_mut();
            // SAFETY: both are places for the results, and the function accepts any address.
            let status = unsafe {
                (self.0.functions.properties)(
                    gpu.context,
                    std::ptr::without_provenance(address),
                    &raw mut properties,
                    &raw mut device,
                )
            };
            match properties.memory {
                _ if status != SUCCESS => {}
                OF_HOST => return Owner::Host,
                OF_DEVICE | SHARED if device == gpu.device => return Owner::Device(at),
                // It moves between the host and whichever device.
                SHARED if device.is_null() => return Owner::Host,
                _ => {}
            }
        }
        Owner::Unknown
    }

    /// Allocates pinned memory.
    pub fn pin(&self, gpu: Gpu) -> Result<Pinned> {
        /// Bytes of a page.
        const PAGE: usize = 4096;
        let description = Plain {
            kind: HOST_MEMORY,
            next: null(),
            flags: 0,
        };
        let mut memory = null_mut();
        // SAFETY: the place is one for the result.
        let allocated = unsafe {
            (self.0.functions.host_alloc)(
                gpu.context,
                &raw const description,
                Pinned::LEN,
                PAGE,
                &raw mut memory,
            )
        };
        check("zeMemAllocHost", allocated).map_err(error)?;
        // SAFETY: the memory was allocated for this alone, and devices know it by the same address.
        Ok(unsafe { Pinned::new(memory.cast(), memory.cast()) })
    }

    fn lane(&self, gpu: Gpu) -> Result<Lane> {
        let idle = self.0.idle.lock();
        let mut idle = idle.unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().position(|lane| lane.device == gpu.device);
        if let Some(at) = at {
            let lane = idle.swap_remove(at);
            // SAFETY: the event exists, and nothing uses it.
            let reset = unsafe { (self.0.functions.reset)(lane.event) };
            check("zeEventHostReset", reset).map_err(error)?;
            return Ok(lane);
        }
        drop(idle);
        self.new_lane(gpu).map_err(error)
    }

    fn new_lane(&self, mut gpu: Gpu) -> std::result::Result<Lane, Refused> {
        let functions = &self.0.functions;
        let queue = QueueDescription {
            kind: COMMAND_QUEUE,
            next: null(),
            ordinal: self.0.engine.0,
            index: self.0.engine.1,
            flags: 0,
            mode: ASYNCHRONOUS,
            priority: 0,
        };
        let of_events = PoolDescription {
            kind: EVENT_POOL,
            next: null(),
            flags: HOST_VISIBLE,
            count: 1,
        };
        let of_event = EventDescription {
            kind: EVENT,
            next: null(),
            index: 0,
            signal: HOST_SCOPE,
            wait: 0,
        };
        let (mut list, mut pool, mut event) = (null_mut(), null_mut(), null_mut());
        // SAFETY: context and device belong together, the descriptions live during the calls, and all
        // others are places for the results.
        unsafe {
            let made = (functions.list)(gpu.context, gpu.device, &raw const queue, &raw mut list);
            check("zeCommandListCreateImmediate", made)?;
            let made = (functions.pool)(
                gpu.context,
                &raw const of_events,
                1,
                &raw mut gpu.device,
                &raw mut pool,
            );
            check("zeEventPoolCreate", made)?;
            let made = (functions.event)(pool, &raw const of_event, &raw mut event);
            check("zeEventCreate", made)?;
        }
        Ok(Lane {
            device: gpu.device,
            list,
            event,
        })
    }

    /// Begins to copy between memory that the drivers know.
    ///
    /// # Safety
    /// Both ranges are valid until the copy has been made.
    pub unsafe fn copy(&self, gpu: Gpu, from: *const u8, to: *mut u8, len: usize) -> Result<Begun> {
        let lane = self.lane(gpu)?;
        // SAFETY: the caller guarantees that both ranges are valid, the list and the event exist, and
        // no event is waited for.
        let copied = unsafe {
            (self.0.functions.copy)(
                lane.list,
                to.cast(),
                from.cast(),
                len,
                lane.event,
                0,
                null_mut(),
            )
        };
        check("zeCommandListAppendMemoryCopy", copied).map_err(error)?;
        Ok(Begun {
            loader: self.0.clone(),
            lane: Some(lane),
        })
    }
}

/// Asks a function for its list: first for the number of entries.
fn listed(
    call: &'static str,
    mut list: impl FnMut(*mut u32, *mut *mut c_void) -> Status,
) -> std::result::Result<Vec<*mut c_void>, Refused> {
    let mut count = 0;
    check(call, list(&raw mut count, null_mut()))?;
    let mut entries = vec![null_mut(); count as usize];
    check(call, list(&raw mut count, entries.as_mut_ptr()))?;
    entries.truncate(count as usize);
    Ok(entries)
}
