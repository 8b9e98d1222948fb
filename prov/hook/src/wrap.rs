//! The wrapper: objects of any provider, ours or one in C, with a hook between them and the
//! application.
//!
//! A layer over a fabric wraps every object that is opened through it. A wrapped object begins with
//! the C structure of its class, whose tables are this module's; they are generated from the text of
//! the interface's tables ([`tables`]). Each function shows the call to the layer's [`Hook`], passes
//! it to the object below and shows the result. Objects among the arguments, also those in
//! structures, are replaced by the ones below them, and objects that a call or an event returns are
//! replaced by those over them. Everything else is passed as it is: buffers, descriptors, addresses,
//! and contexts, which the provider below has from the application itself.
//!
//! This module is a part of the seam to C (FFI boundary). Hooks have no unsafe code: they see
//! [`Call`]s.

mod argument;
#[macro_use]
mod blocking;
mod call;
mod operation;
mod owner;
mod registry;
mod slot;
mod special;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod value;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;

pub use self::call::{Call, Completion};
pub use self::operation::{Operation, Table};
use crate::below::Below;

/// A layer's observer. Any thread may be in it at any time.
pub trait Hook: Send + Sync + Sized + 'static {
    /// The name that `FI_HOOK` has.
    const NAME: &'static CStr;

    /// Whether objects are kept after they have been closed, so that calls on them are found out.
    const KEEPS_CLOSED: bool = false;

    /// Makes the observer of a fabric of the provider.
    fn install(below: Below) -> Result<Self>;

    /// Called before each call; the value returned is handed to [`Hook::after`].
    fn before(&self, _call: &Call<'_>) -> u64 {
        0
    }

    /// Called after each call, which returned `result`. (If the thread is cancelled in the call, this
    /// function is not called.)
    fn after(&self, _call: &Call<'_>, _before: u64, _result: i64) {}

    /// Called for a call on an object that has been closed, which is not carried out.
    fn after_close(&self, _call: &Call<'_>) {}

    /// Called when the fabric has been closed.
    fn finish(&self) {}
}

/// What a wrapped object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Fabric,
    Domain,
    Endpoint,
    PassiveEndpoint,
    SharedTransmit,
    EventQueue,
    CompletionQueue,
    Counter,
    AddressVector,
    AddressVectorSet,
    Memory,
    WaitSet,
    PollSet,
    Group,
    XpuContext,
}

impl Kind {
    /// Returns the name of the class.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fabric => "fabric",
            Kind::Domain => "domain",
            Kind::Endpoint => "endpoint",
            Kind::PassiveEndpoint => "passive endpoint",
            Kind::SharedTransmit => "shared transmit context",
            Kind::EventQueue => "event queue",
            Kind::CompletionQueue => "completion queue",
            Kind::Counter => "counter",
            Kind::AddressVector => "address vector",
            Kind::AddressVectorSet => "address vector set",
            Kind::Memory => "memory region",
            Kind::WaitSet => "wait set",
            Kind::PollSet => "poll set",
            Kind::Group => "group",
            Kind::XpuContext => "accelerator context",
        }
    }
}

/// The C structure of any class. All begin with a `fid`.
union Header {
    fabric: fid_fabric,
    domain: fid_domain,
    ep: fid_ep,
    pep: fid_pep,
    stx: fid_stx,
    eq: fid_eq,
    cq: fid_cq,
    cntr: fid_cntr,
    av: fid_av,
    av_set: fid_av_set,
    mr: fid_mr,
    wait: fid_wait,
    poll: fid_poll,
    mc: fid_mc,
    xpu: fid_xpu_ctx,
}

/// A wrapped object. The application has the address of the header.
#[repr(C)]
struct Wrapped {
    /// C code may change it (`fid::context`): no reference to it is ever made.
    header: UnsafeCell<Header>,
    core: Core,
}

/// What the library knows about a wrapped object.
struct Core {
    kind: Kind,
    /// The object below, which is open until this one is closed.
    below: *mut fid,
    layer: Arc<Layer>,
    is_closed: AtomicBool,
    /// Of a completion queue, `FI_CQ_FORMAT_*`.
    format: AtomicU32,
    /// Of an endpoint, the flags of transmit and receive operations that are given none.
    transmit_flags: AtomicU64,
    receive_flags: AtomicU64,
    /// Of an event queue that is shared, the queue that the provider writes to.
    owner: OnceLock<owner::Owner>,
}

/// A hook over one fabric.
struct Layer {
    hook: Box<dyn Observer>,
    /// Closed objects, the oldest first, if the hook wants them kept.
    closed: Mutex<Vec<ClosedObject>>,
    /// Children of fork(2) leave the list alone, which may stay locked there.
    process: Process,
}

/// The number of closed objects that a layer keeps at most: a MiB of them.
const CLOSED_OBJECTS: usize = 4096;
const _: () = assert!(CLOSED_OBJECTS * size_of::<Wrapped>() <= 1 << 20);

/// A closed object, which nobody but a faulty application uses.
struct ClosedObject(*mut Wrapped);

// SAFETY: it is a box of plain memory and of what is `Send`.
unsafe impl Send for ClosedObject {}

impl Drop for ClosedObject {
    fn drop(&mut self) {
        // SAFETY: `Wrapped::new` made it, and it is dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// [`Hook`] as a trait object.
trait Observer: Send + Sync {
    fn keeps_closed(&self) -> bool;
    fn before(&self, call: &Call<'_>) -> u64;
    fn after(&self, call: &Call<'_>, before: u64, result: i64);
    fn after_close(&self, call: &Call<'_>);
    fn finish(&self);
}

impl<H: Hook> Observer for H {
    fn keeps_closed(&self) -> bool {
        H::KEEPS_CLOSED
    }

    fn before(&self, call: &Call<'_>) -> u64 {
        Hook::before(self, call)
    }

    fn after(&self, call: &Call<'_>, before: u64, result: i64) {
        Hook::after(self, call, before, result);
    }

    fn after_close(&self, call: &Call<'_>) {
        Hook::after_close(self, call);
    }

    fn finish(&self) {
        Hook::finish(self);
    }
}

impl Core {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn format(&self) -> fi_cq_format {
        self.format.load(Ordering::Relaxed)
    }

    fn default_flags(&self, of_receives: bool) -> u64 {
        let flags = match of_receives {
            true => &self.receive_flags,
            false => &self.transmit_flags,
        };
        flags.load(Ordering::Relaxed)
    }

    /// Begins a call: returns the hook's value, or `None` for an object that has been closed.
    #[inline(always)]
    fn enter(&self, call: &Call<'_>) -> Option<u64> {
        if self.is_closed.load(Ordering::Acquire) {
            self.layer.hook.after_close(call);
            return None;
        }
        Some(self.layer.hook.before(call))
    }

    /// Ends a call.
    #[inline(always)]
    fn leave(&self, call: &Call<'_>, before: u64, result: i64) {
        self.layer.hook.after(call, before, result);
    }
}

impl Wrapped {
    /// Returns the object that a call of one of the tables was made on.
    ///
    /// # Safety
    /// `object` begins with a `fid` that has one of this module's tables.
    #[inline(always)]
    unsafe fn of<'a>(object: *const fid) -> &'a Core {
        // SAFETY: only wrapped objects have these tables.
        unsafe { &(*object.cast::<Wrapped>()).core }
    }

    /// Wraps an object of a layer, and returns what the application gets.
    ///
    /// # Safety
    /// `below` is an open object of this kind, and nobody but the caller has it.
    unsafe fn wrap(below: *mut fid, kind: Kind, layer: &Arc<Layer>) -> *mut fid {
        // SAFETY: the caller's promise.
        let header = unsafe { header(below, kind) };
        let wrapped = Box::into_raw(Box::new(Wrapped {
            header: UnsafeCell::new(header),
            core: Core {
                kind,
                below,
                layer: layer.clone(),
                is_closed: AtomicBool::new(false),
                format: AtomicU32::new(FI_CQ_FORMAT_UNSPEC),
                transmit_flags: AtomicU64::new(0),
                receive_flags: AtomicU64::new(0),
                owner: OnceLock::new(),
            },
        }));
        registry::add(below.expose_provenance(), wrapped.expose_provenance());
        // The address of the header is that of the whole.
        wrapped.cast()
    }

    /// Ends the wrapped object whose object below has been closed.
    ///
    /// # Safety
    /// `wrapped` came from [`Wrapped::wrap`], and nobody uses it any more but a faulty application.
    unsafe fn end(wrapped: *mut Wrapped) {
        // SAFETY: the caller's promise.
        let core = unsafe { &(*wrapped).core };
        registry::remove(core.below.addr(), wrapped.addr());
        core.is_closed.store(true, Ordering::Release);
        let layer = core.layer.clone();
        let is_fabric = core.kind == Kind::Fabric;
        let object = ClosedObject(wrapped);
        let mut oldest = None;
        if layer.hook.keeps_closed() && !is_fabric && layer.process.is_noted() {
            let mut closed = layer.closed.lock().unwrap_or_else(PoisonError::into_inner);
            if closed.len() >= CLOSED_OBJECTS {
                oldest = Some(closed.remove(0));
            }
            closed.push(object);
        } else {
            drop(object);
        }
        drop(oldest);
        if is_fabric && layer.process.is_noted() {
            // Closed objects hold their layer, too.
            let mut closed = layer.closed.lock().unwrap_or_else(PoisonError::into_inner);
            let closed = std::mem::take(&mut *closed);
            drop(closed);
            layer.hook.finish();
        }
    }
}

/// Returns the header of a wrapped object.
///
/// # Safety
/// `below` is an open object of this kind.
unsafe fn header(below: *mut fid, kind: Kind) -> Header {
    use tables::*;
    fn table<T>(table: &'static T) -> *mut T {
        // Applications read tables, and never write to them.
        from_ref(table).cast_mut()
    }
    // SAFETY: the caller's promise.
    unsafe {
        let fid = fid {
            fclass: (*below).fclass,
            context: (*below).context,
            ops: table(&OPS),
        };
        match kind {
            Kind::Fabric => Header {
                fabric: fid_fabric {
                    fid,
                    ops: table(&OPS_FABRIC),
                    api_version: (*below.cast::<fid_fabric>()).api_version,
                },
            },
            Kind::Domain => Header {
                domain: fid_domain {
                    fid,
                    ops: table(&OPS_DOMAIN),
                    mr: table(&OPS_MR),
                },
            },
            Kind::Endpoint => Header {
                ep: fid_ep {
                    fid,
                    ops: table(&OPS_EP),
                    cm: table(&OPS_CM),
                    msg: table(&OPS_MSG),
                    rma: table(&OPS_RMA),
                    tagged: table(&OPS_TAGGED),
                    atomic: table(&OPS_ATOMIC),
                    collective: table(&OPS_COLLECTIVE),
                },
            },
            Kind::PassiveEndpoint => Header {
                pep: fid_pep {
                    fid,
                    ops: table(&OPS_EP),
                    cm: table(&OPS_CM),
                },
            },
            Kind::SharedTransmit => Header {
                stx: fid_stx {
                    fid,
                    ops: table(&OPS_EP),
                },
            },
            Kind::EventQueue => Header {
                eq: fid_eq {
                    fid,
                    ops: table(&OPS_EQ),
                },
            },
            Kind::CompletionQueue => Header {
                cq: fid_cq {
                    fid,
                    ops: table(&OPS_CQ),
                },
            },
            Kind::Counter => Header {
                cntr: fid_cntr {
                    fid,
                    ops: table(&OPS_CNTR),
                },
            },
            Kind::AddressVector => Header {
                av: fid_av {
                    fid,
                    ops: table(&OPS_AV),
                },
            },
            Kind::AddressVectorSet => Header {
                av_set: fid_av_set {
                    fid,
                    ops: table(&OPS_AV_SET),
                },
            },
            Kind::Memory => Header {
                mr: fid_mr {
                    fid,
                    mem_desc: (*below.cast::<fid_mr>()).mem_desc,
                    key: (*below.cast::<fid_mr>()).key,
                },
            },
            Kind::WaitSet => Header {
                wait: fid_wait {
                    fid,
                    ops: table(&OPS_WAIT),
                },
            },
            Kind::PollSet => Header {
                poll: fid_poll {
                    fid,
                    ops: table(&OPS_POLL),
                },
            },
            Kind::Group => Header {
                mc: fid_mc {
                    fid,
                    fi_addr: (*below.cast::<fid_mc>()).fi_addr,
                },
            },
            Kind::XpuContext => Header {
                xpu: fid_xpu_ctx {
                    fid,
                    ops: table(&OPS_XPU_CTX),
                },
            },
        }
    }
}

/// Returns the object below a wrapped object, and any other object as it is.
///
/// # Safety
/// `object` is null or an object.
#[inline(always)]
unsafe fn below(object: *mut fid) -> *mut fid {
    // SAFETY: the caller's promise; only wrapped objects have this table.
    unsafe {
        if !object.is_null() && std::ptr::eq((*object).ops, &tables::OPS) {
            Wrapped::of(object).below
        } else {
            object
        }
    }
}

/// Copies what the provider may have changed in a memory region or a group since it was opened.
///
/// # Safety
/// `object` is wrapped and open.
unsafe fn refresh(object: *mut fid) {
    // SAFETY: the caller's promise.
    unsafe {
        let core = Wrapped::of(object);
        match core.kind {
            Kind::Memory => {
                let (region, below) = (object.cast::<fid_mr>(), core.below.cast::<fid_mr>());
                (*region).key = (*below).key;
                (*region).mem_desc = (*below).mem_desc;
            }
            Kind::Group => {
                (*object.cast::<fid_mc>()).fi_addr = (*core.below.cast::<fid_mc>()).fi_addr;
            }
            _ => {}
        }
    }
}

/// A hook's C structure (fi_provider(3)).
pub struct Entry(UnsafeCell<fi_provider>);

// SAFETY: this crate never writes to it, and the framework, whose member `context` is, synchronizes
// its own accesses.
unsafe impl Sync for Entry {}

impl Entry {
    /// The structure of a hook.
    pub const fn of<H: Hook>() -> Self {
        Entry(UnsafeCell::new(fi_provider {
            version: FI_VERSION(207, 0),
            fi_version: FI_VERSION(2, 7),
            context: fi_context {
                internal: [null_mut(); 4],
            },
            name: H::NAME.as_ptr(),
            getinfo: None,
            fabric: Some(install::<H>),
            cleanup: None,
        }))
    }

    /// Returns the structure for the framework.
    pub fn as_c(&self) -> *mut fi_provider {
        self.0.get()
    }

    /// Returns the structure, for parameters.
    pub fn as_provider(&self) -> &fi_provider {
        // SAFETY: the structure is static, and only its context is written to, by the framework
        // before anything else has the hook.
        unsafe { &*self.0.get() }
    }
}

/// Installs a hook: the framework calls it with the fabric in the attributes and the fabric's
/// provider as the context.
unsafe extern "C" fn install<H: Hook>(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the framework's promise, as fi_hook(7) describes it.
    unsafe {
        let below = (*attr).fabric;
        let provider = Below::of(context.cast());
        let (Some(provider), false) = (provider, below.is_null()) else {
            return Errno::EINVAL.to_c();
        };
        let hook = match H::install(provider) {
            Ok(hook) => hook,
            Err(error) => return error.to_c(),
        };
        let layer = Arc::new(Layer {
            hook: Box::new(hook),
            closed: Mutex::new(Vec::new()),
            process: Process::current(),
        });
        *fabric = Wrapped::wrap(below.cast(), Kind::Fabric, &layer).cast();
    }
    0
}
