//! The functions of libcuda.so.1, with a safe face.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use prov_base::device_memory::handles::{Allocation, DEVICE, HANDLE};
use prov_base::errno::{Errno, Result};

use super::super::library::library;
use super::super::staged::{Direction, Outcome, Pinned};
use super::super::{LOG, Owner};

/// `CUresult`
type Status = c_int;
/// `CUdeviceptr`
type DevicePointer = u64;

/// `CUDA_SUCCESS`
const SUCCESS: Status = 0;
/// `CUDA_ERROR_NOT_READY`: the work before an event is not done.
const NOT_READY: Status = 600;
/// `CU_STREAM_NON_BLOCKING`: the stream waits for no work of the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for all contexts.
const PORTABLE: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`
const WITHOUT_TIMING: c_uint = 2;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flag there is, which has to be set.
const LAZY_PEER_ACCESS: c_uint = 1;

/// `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle([u8; HANDLE]);

// Values of `CUpointer_attribute`.
const MEMORY_TYPE: c_uint = 2;
/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: calls that copy to or from the allocation, and are synchronous but
/// for some kinds of memory, are so for all.
const SYNC_MEMOPS: c_uint = 6;
/// A number that no other allocation of the process has had.
const BUFFER_ID: c_uint = 7;
const DEVICE_ORDINAL: c_uint = 9;

// Values of `CUmemorytype`.
const OF_HOST: c_uint = 1;
const OF_DEVICE: c_uint = 2;

library! {
    /// The driver.
    Driver in "libcuda.so.1" {
        init as "cuInit"(c_uint);
        device_count as "cuDeviceGetCount"(*mut c_int);
        device as "cuDeviceGet"(*mut c_int, c_int);
        retain as "cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int);
        push as "cuCtxPushCurrent_v2"(*mut c_void);
        pop as "cuCtxPopCurrent_v2"(*mut *mut c_void);
        stream as "cuStreamCreate"(*mut *mut c_void, c_uint);
        event as "cuEventCreate"(*mut *mut c_void, c_uint);
        host_alloc as "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        record as "cuEventRecord"(*mut c_void, *mut c_void);
        query as "cuEventQuery"(*mut c_void);
        to_host as "cuMemcpyDtoHAsync_v2"(*mut c_void, DevicePointer, usize, *mut c_void);
        to_device as "cuMemcpyHtoDAsync_v2"(DevicePointer, *const c_void, usize, *mut c_void);
        within as "cuMemcpyDtoDAsync_v2"(DevicePointer, DevicePointer, usize, *mut c_void);
        attributes as "cuPointerGetAttributes"(
            c_uint, *mut c_uint, *mut *mut c_void, DevicePointer
        );
        set_attribute as "cuPointerSetAttribute"(*const c_void, c_uint, DevicePointer);
        range as "cuMemGetAddressRange_v2"(*mut DevicePointer, *mut usize, DevicePointer);
        uuid as "cuDeviceGetUuid"(*mut [u8; DEVICE], c_int);
        ipc_handle as "cuIpcGetMemHandle"(*mut IpcHandle, DevicePointer);
        ipc_open as "cuIpcOpenMemHandle_v2"(*mut DevicePointer, IpcHandle, c_uint);
        ipc_close as "cuIpcCloseMemHandle"(DevicePointer);
        error_name as "cuGetErrorName"(Status, *mut *const c_char);
    } -> Status
}

/// The primary context of a device, which is kept as long as the process lives.
#[derive(Clone, Copy)]
pub struct Context(*mut c_void);

// SAFETY: a context may be made current in any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the value does not change.
unsafe impl Sync for Context {}

/// A stream for one copy at a time, and the event behind the copy. Both exist as long as the process
/// lives: freeing them may wait for the device.
struct Lane {
    stream: *mut c_void,
    event: *mut c_void,
}

// SAFETY: streams and events may be used by any thread.
unsafe impl Send for Lane {}
// SAFETY: as above; the value does not change.
unsafe impl Sync for Lane {}

/// A context that is current in this thread, until this value is dropped.
pub struct Entered<'d> {
    driver: &'d Driver,
    /// It belongs to the thread.
    thread: PhantomData<*mut ()>,
}

/// Why the driver has refused a call.
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Driver {
    fn check(&self, call: &str, status: Status) -> std::result::Result<(), Refused> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the function accepts all numbers, and stores null or a constant, terminated text.
        let name = unsafe {
            (self.error_name)(status, &raw mut name);
            match name.is_null() {
                true => c"",
                false => CStr::from_ptr(name),
            }
        };
        let name = name.to_string_lossy();
        Err(Refused(format!("{call}: {name} ({status})")))
    }

    /// Logs a refusal.
    fn error(refused: &Refused) -> Errno {
        prov_base::warn_again!(target: LOG, "CUDA: {refused}");
        Errno::EIO
    }

    /// Starts the driver; returns the number of devices.
    pub fn start(&self) -> std::result::Result<usize, Refused> {
        let mut count = 0;
        // SAFETY: the first call has no other flags than 0; `count` is a place for the result.
        unsafe {
            self.check("cuInit", (self.init)(0))?;
            self.check("cuDeviceGetCount", (self.device_count)(&raw mut count))?;
        }
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the primary context of a device.
    pub fn context(&self, number: usize) -> Result<Context> {
        let number = c_int::try_from(number).map_err(|_| Errno::EINVAL)?;
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: both are places for the results, and the device is one that was returned.
        let retained = unsafe {
            let found = (self.device)(&raw mut device, number);
            self.check("cuDeviceGet", found).and_then(|()| {
                let retained = (self.retain)(&raw mut context, device);
                self.check("cuDevicePrimaryCtxRetain", retained)
            })
        };
        match retained {
            Ok(()) => Ok(Context(context)),
            Err(refused) => Err(Self::error(&refused)),
        }
    }

    /// Makes a context current in this thread.
    pub fn enter(&self, context: Context) -> Result<Entered<'_>> {
        // SAFETY: the context is one that was retained, for good.
        let pushed = unsafe { self.check("cuCtxPushCurrent", (self.push)(context.0)) };
        match pushed {
            Ok(()) => Ok(Entered {
                driver: self,
                thread: PhantomData,
            }),
            Err(refused) => Err(Self::error(&refused)),
        }
    }

    /// Returns the identification of a device, which is the same in all processes.
    pub fn identification(&self, number: usize) -> Result<[u8; DEVICE]> {
        let number = c_int::try_from(number).map_err(|_| Errno::EINVAL)?;
        let (mut device, mut uuid) = (0, [0; DEVICE]);
        // SAFETY: both are places for the results, `CUdevice` and `CUuuid`.
        let asked = unsafe {
            let found = (self.device)(&raw mut device, number);
            self.check("cuDeviceGet", found).and_then(|()| {
                let asked = (self.uuid)(&raw mut uuid, device);
                self.check("cuDeviceGetUuid", asked)
            })
        };
        match asked {
            Ok(()) => Ok(uuid),
            Err(refused) => Err(Self::error(&refused)),
        }
    }

    /// Returns whose memory an address is.
    pub fn owner(&self, address: usize) -> Owner {
        let (mut memory_type, mut ordinal): (c_uint, c_int) = (0, -1);
        let mut asked = [MEMORY_TYPE, DEVICE_ORDINAL];
        let mut answers = [
            (&raw mut memory_type).cast::<c_void>(),
            (&raw mut ordinal).cast::<c_void>(),
        ];
        // SAFETY: two attributes are asked for, and the places have their types: `CUmemorytype` and
        // `int`. The function accepts any address.
        let status = unsafe {
            (self.attributes)(
                asked.len() as c_uint,
                asked.as_mut_ptr(),
                answers.as_mut_ptr(),
                address as DevicePointer,
            )
        };
        match memory_type {
            _ if status != SUCCESS => Owner::Unknown,
            OF_HOST => Owner::Host,
            OF_DEVICE => usize::try_from(ordinal).map_or(Owner::Unknown, Owner::Device),
            _ => Owner::Unknown,
        }
    }
}

impl Entered<'_> {
    /// Creates a stream and an event.
    fn lane(&self) -> Result<Lane> {
        let driver = self.driver;
        let (mut stream, mut event) = (null_mut(), null_mut());
        // SAFETY: both are places for the results, and a context is current.
        let made = unsafe {
            let made = (driver.stream)(&raw mut stream, NON_BLOCKING);
            driver.check("cuStreamCreate", made).and_then(|()| {
                let made = (driver.event)(&raw mut event, WITHOUT_TIMING);
                driver.check("cuEventCreate", made)
            })
        };
        match made {
            Ok(()) => Ok(Lane { stream, event }),
            Err(refused) => Err(Driver::error(&refused)),
        }
    }

    /// Allocates pinned memory.
    pub fn pinned(&self) -> Result<Pinned> {
        let mut memory = null_mut();
        // SAFETY: the place is one for the result.
        let allocated = unsafe { (self.driver.host_alloc)(&raw mut memory, Pinned::LEN, PORTABLE) };
        match self.driver.check("cuMemHostAlloc", allocated) {
            // SAFETY: the memory was allocated for this alone, and all devices know it by its address.
            Ok(()) => Ok(unsafe { Pinned::new(memory.cast(), memory.cast()) }),
            Err(refused) => Err(Driver::error(&refused)),
        }
    }

    /// Returns the allocation that an address is in.
    pub fn allocation(&self, address: usize) -> Option<Allocation> {
        let (mut base, mut len, mut number) = (0, 0, 0u64);
        let mut asked = [BUFFER_ID];
        let mut answers = [(&raw mut number).cast::<c_void>()];
        let driver = self.driver;
        let address = address as DevicePointer;
        // SAFETY: all are places for the results: a device pointer, a `size_t`, and an attribute of the
        // type `unsigned long long`. Both functions accept any address.
        let found = unsafe {
            (driver.range)(&raw mut base, &raw mut len, address) == SUCCESS
                && (driver.attributes)(1, asked.as_mut_ptr(), answers.as_mut_ptr(), address)
                    == SUCCESS
        };
        found.then_some(Allocation {
            base: base as usize,
            len,
            number,
        })
    }

    /// Has the synchronous copies of the application's from and to the allocation of an address be
    /// synchronous always.
    pub fn synchronize_copies(&self, address: usize) {
        let is_on: c_uint = 1;
        let (value, address) = (&raw const is_on, address as DevicePointer);
        // SAFETY: the value of the attribute has this type; the function checks the address.
        let set = unsafe { (self.driver.set_attribute)(value.cast(), SYNC_MEMOPS, address) };
        if let Err(refused) = self.driver.check("cuPointerSetAttribute", set) {
            log::debug!(target: LOG, "CUDA: {refused}");
        }
    }

    /// Makes the handle of an allocation.
    pub fn handle(&self, base: usize) -> Result<[u8; HANDLE]> {
        let mut handle = IpcHandle([0; HANDLE]);
        // SAFETY: the place is one for the result; the function checks the address.
        let made = unsafe { (self.driver.ipc_handle)(&raw mut handle, base as DevicePointer) };
        match self.driver.check("cuIpcGetMemHandle", made) {
            Ok(()) => Ok(handle.0),
            Err(refused) => {
                log::debug!(target: LOG, "CUDA: {refused}");
                Err(Errno::ENOSYS)
            }
        }
    }

    /// Opens another process's allocation; returns its address.
    pub fn open(&self, handle: &[u8; HANDLE]) -> Result<usize> {
        let mut address = 0;
        // SAFETY: the place is one for the result; the function checks the handle.
        let opened = unsafe {
            (self.driver.ipc_open)(&raw mut address, IpcHandle(*handle), LAZY_PEER_ACCESS)
        };
        match self.driver.check("cuIpcOpenMemHandle", opened) {
            Ok(()) => Ok(address as usize),
            Err(refused) => {
                log::debug!(target: LOG, "CUDA: {refused}");
                Err(Errno::EINVAL)
            }
        }
    }

    /// Closes an allocation that was opened. This may wait for the device.
    ///
    /// # Safety
    /// Nothing accesses it any more.
    pub unsafe fn close(&self, address: usize) {
        // SAFETY: the caller guarantees that it is not in use; the function checks the address.
        let closed = unsafe { (self.driver.ipc_close)(address as DevicePointer) };
        if let Err(refused) = self.driver.check("cuIpcCloseMemHandle", closed) {
            log::debug!(target: LOG, "CUDA: {refused}");
        }
    }

    /// Begins to copy; returns whether the lane's event is behind the copy. On an error nothing was
    /// begun.
    ///
    /// # Safety
    /// Both ranges are valid until the copy has been made, of the kinds that the direction says, and
    /// that of the host is pinned. The lane is of the context.
    unsafe fn copy(
        &self,
        lane: &Lane,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<bool> {
        let driver = self.driver;
        let (source, target) = (from.expose_provenance(), to.expose_provenance());
        let (source, target) = (source as DevicePointer, target as DevicePointer);
        // SAFETY: the caller guarantees that both ranges are valid for as long as the device needs.
        let recorded = unsafe {
            let begun = match direction {
                Direction::ToHost => (driver.to_host)(to.cast(), source, len, lane.stream),
                Direction::ToDevice => (driver.to_device)(target, from.cast(), len, lane.stream),
                Direction::Within => (driver.within)(target, source, len, lane.stream),
            };
            let begun = driver.check("cuMemcpyAsync", begun);
            begun.map_err(|refused| Driver::error(&refused))?;
            driver.check("cuEventRecord", (driver.record)(lane.event, lane.stream))
        };
        let recorded = recorded.map_err(|refused| Driver::error(&refused));
        Ok(recorded.is_ok())
    }

    /// Returns the outcome of what was begun on a lane; `None` while it is under way.
    fn outcome(&self, lane: &Lane) -> Option<Result> {
        // SAFETY: the event exists.
        let status = unsafe { (self.driver.query)(lane.event) };
        if status == NOT_READY {
            return None;
        }
        let outcome = self.driver.check("cuEventQuery", status);
        Some(outcome.map_err(|refused| Driver::error(&refused)))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut popped = null_mut();
        // SAFETY: the context that is current is the one that was pushed.
        unsafe { (self.driver.pop)(&raw mut popped) };
    }
}

/// What copies for one device: its context, and streams that no copy uses.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    driver: Arc<Driver>,
    context: Context,
    idle: Mutex<Vec<Lane>>,
}

/// Streams of a device that are kept for later copies.
const IDLE: usize = 64;

impl Queue {
    /// Creates it for a device, by its context.
    pub fn new(driver: &Arc<Driver>, context: Context) -> Self {
        Queue(Arc::new(Shared {
            driver: driver.clone(),
            context,
            idle: Mutex::default(),
        }))
    }

    /// Makes the context current in this thread.
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.0.driver.enter(self.0.context)
    }

    /// Begins to copy on a stream that no other copy uses. On an error nothing was begun.
    ///
    /// # Safety
    /// Both ranges are valid until the copy has been made, of the kinds that the direction says, and
    /// that of the host is pinned.
    pub unsafe fn copy(
        &self,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Begun> {
        let entered = self.enter()?;
        let kept = self.idle(|idle| idle.pop());
        let lane = kept.map_or_else(|| entered.lane(), Ok)?;
        // SAFETY: the caller keeps the contract, and all streams here are of the context.
        let is_recorded = unsafe { entered.copy(&lane, direction, from, to, len)? };
        Ok(Begun {
            queue: self.clone(),
            lane: is_recorded.then_some(lane),
        })
    }

    fn idle<T>(&self, change: impl FnOnce(&mut Vec<Lane>) -> T) -> T {
        change(&mut self.0.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A copy that was begun.
pub struct Begun {
    queue: Queue,
    /// `None` if there is nothing that tells of its end: the driver refused the event, or the end was
    /// reported.
    lane: Option<Lane>,
}

impl Outcome for Begun {
    /// After a failure the stream is not used again.
    fn outcome(&mut self) -> Option<Result> {
        let Some(lane) = &self.lane else {
            return Some(Err(Errno::EIO));
        };
        let outcome = match self.queue.enter() {
            Ok(entered) => entered.outcome(lane)?,
            Err(error) => Err(error),
        };
        let lane = self.lane.take();
        if outcome.is_ok() {
            self.queue.idle(|idle| {
                if idle.len() < IDLE {
                    idle.extend(lane);
                }
            });
        }
        Some(outcome)
    }
}
