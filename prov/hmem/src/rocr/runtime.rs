//! The functions of libhsa-runtime64.so.1, with a safe face.

use std::ffi::c_void;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use prov_base::device_memory::handles::DEVICE;
use prov_base::errno::{Errno, Result};

use super::super::LOG;
use super::super::library::library;
use super::super::staged::{Outcome, Pinned};

/// `hsa_status_t`
pub type Status = u32;
/// `HSA_STATUS_SUCCESS`
pub const SUCCESS: Status = 0;
/// `HSA_AGENT_INFO_DEVICE`: a `hsa_device_type_t`.
const DEVICE_TYPE: u32 = 17;
/// `HSA_AMD_AGENT_INFO_DOMAIN`, `HSA_AMD_AGENT_INFO_BDFID` and `HSA_AMD_AGENT_INFO_DRIVER_NODE_ID`: numbers
/// of a device that are the same in all processes.
const NUMBERS: [u32; 3] = [0xa00f, 0xa006, 0xa004];
/// `HSA_DEVICE_TYPE_CPU`
const PROCESSOR: u32 = 0;
/// `HSA_DEVICE_TYPE_GPU`
const GPU: u32 = 1;
/// `HSA_EXT_POINTER_TYPE_UNKNOWN`
const UNKNOWN: u32 = 0;
/// `HSA_EXT_POINTER_TYPE_LOCKED`: memory of the host that was made known to the runtime.
const LOCKED: u32 = 2;

/// `hsa_agent_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent(u64);

/// `hsa_signal_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Signal(u64);

/// `hsa_amd_pointer_info_t`, as far as the runtime is asked for it.
#[repr(C)]
pub struct PointerInfo {
    size: u32,
    kind: u32,
    agent_base: *mut c_void,
    host_base: *mut c_void,
    len: usize,
    user_data: *mut c_void,
    owner: Agent,
}

/// A function that allocates memory for a list, of which none is asked for.
type Allocate = Option<unsafe extern "C" fn(usize) -> *mut c_void>;

library! {
    /// The runtime's functions that return a status.
    Functions in "libhsa-runtime64.so.1" {
        init as "hsa_init"();
        agents as "hsa_iterate_agents"(
            unsafe extern "C" fn(Agent, *mut c_void) -> Status, *mut c_void
        );
        agent_info as "hsa_agent_get_info"(Agent, u32, *mut c_void);
        pointer_info as "hsa_amd_pointer_info"(
            *const c_void, *mut PointerInfo, Allocate, *mut u32, *mut *mut Agent
        );
        copy as "hsa_amd_memory_async_copy"(
            *mut c_void, Agent, *const c_void, Agent, usize, u32, *const Signal, Signal
        );
        lock as "hsa_amd_memory_lock"(
            *mut c_void, usize, *const Agent, i32, *mut *mut c_void
        );
        create as "hsa_signal_create"(i64, u32, *const Agent, *mut Signal);
        destroy as "hsa_signal_destroy"(Signal);
    } -> Status
}

library! {
    /// Those that return the value of a signal.
    Signals in "libhsa-runtime64.so.1" {
        load_value as "hsa_signal_load_scacquire"(Signal);
    } -> i64
}

struct Inner {
    functions: Functions,
    signals: Signals,
}

/// The runtime.
pub struct Runtime(Arc<Inner>);

/// The agents of the runtime.
#[derive(Default)]
pub struct Agents {
    /// The first processor.
    pub host: Option<Agent>,
    /// The GPUs.
    pub devices: Vec<Agent>,
}

/// Why the runtime has refused a call.
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
fn error(refused: &Refused) -> Errno {
    prov_base::warn_again!(target: LOG, "ROCr: {refused}");
    Errno::EIO
}

/// A copy that was begun.
pub struct Begun {
    runtime: Arc<Inner>,
    signal: Signal,
}

impl Outcome for Begun {
    fn outcome(&mut self) -> Option<Result> {
        // SAFETY: the signal exists as long as the value.
        match unsafe { (self.runtime.signals.load_value)(self.signal) } {
            0 => Some(Ok(())),
            1.. => None,
            value => {
                prov_base::warn_again!(target: LOG, "ROCr: a copy has failed: {value}");
                Some(Err(Errno::EIO))
            }
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // SAFETY: the signal exists, and is not used any more; the copy has been made, or its buffer
        // is kept with the value.
        unsafe { (self.runtime.functions.destroy)(self.signal) };
    }
}

/// Sorts an agent into the list at `list`.
unsafe extern "C" fn enter(agent: Agent, list: *mut c_void) -> Status {
    // SAFETY: `Runtime::start` has passed the list.
    unsafe { (*list.cast::<Vec<Agent>>()).push(agent) };
    SUCCESS
}

impl Runtime {
    /// Loads the library.
    pub fn load() -> std::result::Result<Self, libloading::Error> {
        Ok(Runtime(Arc::new(Inner {
            functions: Functions::load()?,
            signals: Signals::load()?,
        })))
    }

    /// Starts the runtime; returns its agents.
    pub fn start(&self) -> std::result::Result<Agents, Refused> {
        let functions = &self.0.functions;
        let mut list: Vec<Agent> = Vec::new();
        let mut agents = Agents::default();
        // SAFETY: the runtime calls `enter` with the list, during the call.
        unsafe {
            check("hsa_init", (functions.init)())?;
            let listed = (functions.agents)(enter, (&raw mut list).cast());
            check("hsa_iterate_agents", listed)?;
        }
        for agent in list {
            let mut kind = u32::MAX;
            // SAFETY: the attribute is a number of 32 bits, for which `kind` is the place.
            let asked =
                unsafe { (functions.agent_info)(agent, DEVICE_TYPE, (&raw mut kind).cast()) };
            check("hsa_agent_get_info", asked)?;
            match kind {
                PROCESSOR => agents.host = agents.host.or(Some(agent)),
                GPU => agents.devices.push(agent),
                _ => {}
            }
        }
        Ok(agents)
    }

    /// Returns the identification of a device, which is the same in all processes of the host.
    pub fn identification(&self, device: Agent) -> Result<[u8; DEVICE]> {
        let mut words = [0u32; NUMBERS.len()];
        for (attribute, word) in NUMBERS.into_iter().zip(&mut words) {
            let place = std::ptr::from_mut(word).cast();
            // SAFETY: the attributes are numbers of at most 32 bits, for which there is a place.
            let asked = unsafe { (self.0.functions.agent_info)(device, attribute, place) };
            check("hsa_agent_get_info", asked).map_err(|refused| error(&refused))?;
        }
        let mut bytes = [0; DEVICE];
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        bytes
            .iter_mut()
            .zip(words)
            .for_each(|(place, byte)| *place = byte);
        Ok(bytes)
    }

    /// Returns the agent whose memory an address is, if the runtime knows it.
    pub fn owner(&self, address: usize) -> Option<Agent> {
        self.known(address).map(|info| info.owner)
    }

    /// Returns the first address of the allocation of an address, and its length.
    pub fn range(&self, address: usize) -> Option<(usize, usize)> {
        let info = self.known(address)?;
        Some((info.agent_base.expose_provenance(), info.len))
    }

    fn known(&self, address: usize) -> Option<PointerInfo> {
        let mut info = PointerInfo {
            size: size_of::<PointerInfo>() as u32,
            kind: UNKNOWN,
            agent_base: null_mut(),
            host_base: null_mut(),
            len: 0,
            user_data: null_mut(),
            owner: Agent(0),
        };
        // SAFETY: the structure says how much of it there is, no list is asked for, and the function
        // accepts any address.
        let status = unsafe {
            (self.0.functions.pointer_info)(
                std::ptr::without_provenance(address),
                &raw mut info,
                None,
                null_mut(),
                null_mut(),
            )
        };
        (status == SUCCESS && info.kind != UNKNOWN && info.kind != LOCKED).then_some(info)
    }

    /// Allocates pinned memory for a device.
    pub fn pin(&self, device: Agent) -> Result<Pinned> {
        let mut bytes: Vec<u8> = Vec::new();
        let reserved = bytes.try_reserve_exact(Pinned::LEN);
        reserved.map_err(|_| Errno::ENOMEM)?;
        let bytes = bytes.leak().as_mut_ptr();
        let mut address = null_mut();
        // SAFETY: the memory has this length, and is never freed.
        let pinned = unsafe {
            (self.0.functions.lock)(
                bytes.cast(),
                Pinned::LEN,
                &raw const device,
                1,
                &raw mut address,
            )
        };
        check("hsa_amd_memory_lock", pinned).map_err(|refused| error(&refused))?;
        // SAFETY: the memory was allocated for this alone.
        Ok(unsafe { Pinned::new(bytes, address.cast()) })
    }

    /// Begins to copy, from and to memory of these agents.
    ///
    /// # Safety
    /// Both ranges are valid until the copy has been made, of the agents, and known to the runtime.
    pub unsafe fn copy(
        &self,
        to: (*mut u8, Agent),
        from: (*const u8, Agent),
        len: usize,
    ) -> Result<Begun> {
        let functions = &self.0.functions;
        let mut signal = Signal(0);
        // SAFETY: the place is one for the result, and no agents are named.
        let created = unsafe { (functions.create)(1, 0, std::ptr::null(), &raw mut signal) };
        check("hsa_signal_create", created).map_err(|refused| error(&refused))?;
        let begun = Begun {
            runtime: self.0.clone(),
            signal,
        };
        // SAFETY: the caller guarantees that both ranges are valid; nothing is waited for before.
        let copied = unsafe {
            (functions.copy)(
                to.0.cast(),
                to.1,
                from.0.cast(),
                from.1,
                len,
                0,
                std::ptr::null(),
                signal,
            )
        };
        check("hsa_amd_memory_async_copy", copied).map_err(|refused| error(&refused))?;
        Ok(begun)
    }
}
