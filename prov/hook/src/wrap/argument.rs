//! Arguments of calls: objects on the way down are replaced by those below them, opened objects on
//! the way up are wrapped.

use std::ffi::{c_char, c_int, c_void};

use fabric_abi::*;
use libc::iovec;

use super::{Core, Kind, Wrapped, below, registry};

/// A type of arguments.
pub(super) trait Argument: Copy {
    /// Room for a copy of what the argument points to, where that has to be changed.
    type Room: Default;

    /// Returns the argument for the object below.
    ///
    /// # Safety
    /// The argument is as the interface asks; the room stays where it is during the call.
    #[inline(always)]
    unsafe fn lowered(self, _room: &mut Self::Room) -> Self {
        self
    }

    /// Finishes a call of `core`'s object that has succeeded or not, with the argument as the
    /// application gave it.
    ///
    /// # Safety
    /// The call below has returned.
    #[inline(always)]
    unsafe fn finish(self, _room: &Self::Room, _core: &Core, _succeeded: bool) {}
}

macro_rules! passed {
    ($($type:ty),* $(,)?) => {
        $(
            impl Argument for $type {
                type Room = ();
            }
        )*
    };
}

passed!(
    u32,
    u64,
    usize,
    c_int,
    *mut c_void,
    *const c_void,
    *mut c_char,
    *const c_char,
    *mut usize,
    *mut u32,
    *mut u64,
    *mut *mut c_void,
    *mut *mut fid,
    *const iovec,
    *const fi_ioc,
    *mut fi_ioc,
    *const fi_msg,
    *const fi_msg_tagged,
    *const fi_msg_rma,
    *const fi_msg_atomic,
    *const fi_msg_collective,
    *mut fi_cq_err_entry,
    *mut fi_eq_err_entry,
    *mut fi_av_attr,
    *mut fi_av_set_attr,
    *mut fi_tx_attr,
    *mut fi_rx_attr,
    *mut fi_wait_attr,
    *mut fi_poll_attr,
    *mut fi_atomic_attr,
    *mut fi_collective_attr,
    *mut fi_xpu_attr,
    *mut fi_xpu_ctx_attr,
    *mut fid_xpu_cq,
    *mut fid_xpu_cntr,
    *mut fid_xpu_ep,
);

macro_rules! objects {
    ($($object:ident),*) => {
        $(
            impl Argument for *mut $object {
                type Room = ();

                #[inline(always)]
                unsafe fn lowered(self, (): &mut ()) -> Self {
                    // SAFETY: the caller vouches for the object.
                    unsafe { below(self.cast()) }.cast()
                }
            }
        )*
    };
}

objects!(fid, fid_xpu_ctx);

impl Argument for *const fid_av_set {
    type Room = ();

    unsafe fn lowered(self, (): &mut ()) -> Self {
        // SAFETY: the caller vouches for the object.
        unsafe { below(self.cast_mut().cast()) }.cast()
    }
}

macro_rules! opened {
    ($($object:ident: $kind:ident),* $(,)?) => {
        $(
            impl Argument for *mut *mut $object {
                type Room = ();

                unsafe fn finish(self, (): &(), core: &Core, succeeded: bool) {
                    // SAFETY: a call that has succeeded has stored an open object.
                    unsafe {
                        if succeeded && !self.is_null() && !(*self).is_null() {
                            let below = (*self).cast();
                            *self = Wrapped::wrap(below, Kind::$kind, &core.layer).cast();
                        }
                    }
                }
            }
        )*
    };
}

opened!(
    fid_domain: Domain,
    fid_ep: Endpoint,
    fid_pep: PassiveEndpoint,
    fid_stx: SharedTransmit,
    fid_eq: EventQueue,
    fid_cq: CompletionQueue,
    fid_cntr: Counter,
    fid_av: AddressVector,
    fid_av_set: AddressVectorSet,
    fid_mr: Memory,
    fid_wait: WaitSet,
    fid_poll: PollSet,
    fid_mc: Group,
    fid_xpu_ctx: XpuContext,
);

/// Attributes of queues and counters: those with FI_WAIT_SET name a wait set, and those with FI_XPU
/// the context of an accelerator. A copy is made only for them; what the provider has answered is
/// copied back.
macro_rules! queue_attributes {
    ($($attr:ident: [$($xpu:ident)?] answers [$($answer:ident),*];)*) => {
        $(
            impl Argument for *mut $attr {
                type Room = Option<$attr>;

                unsafe fn lowered(self, room: &mut Self::Room) -> Self {
                    // SAFETY: the caller vouches for the attributes, in which the members of objects
                    // are valid if the wait object and the flags say so.
                    unsafe {
                        if self.is_null() {
                            return self;
                        }
                        let has_set = (*self).wait_obj == FI_WAIT_SET;
                        let has_xpu = (*self).flags & FI_XPU != 0;
                        if !has_set && !has_xpu {
                            return self;
                        }
                        let mut attr = *self;
                        if has_set {
                            attr.wait_set = below(attr.wait_set.cast()).cast();
                        }
                        $(
                            if has_xpu {
                                attr.$xpu = below(attr.$xpu.cast()).cast();
                            }
                        )?
                        room.insert(attr)
                    }
                }

                #[allow(unused_variables, reason = "a counter's attributes are no answer")]
                unsafe fn finish(self, room: &Self::Room, _: &Core, _: bool) {
                    if let Some(attr) = room {
                        // SAFETY: there is a copy only of attributes that are not null.
                        $(unsafe { (*self).$answer = attr.$answer };)*
                    }
                }
            }
        )*
    };
}

queue_attributes! {
    fi_cq_attr: [xpu_ctx] answers [size, format];
    fi_eq_attr: [] answers [size];
    fi_cntr_attr: [xpu_ctx] answers [];
}

impl Argument for *const fi_mr_attr {
    type Room = Option<fi_mr_attr>;

    unsafe fn lowered(self, room: &mut Self::Room) -> Self {
        // SAFETY: the caller vouches for the attributes. The member is read by its place, for it is
        // in the structure of callers whose regions have a base only.
        unsafe {
            if self.is_null() {
                return self;
            }
            let over = (&raw const (*self).base_mr).read();
            match registry::below(over.addr()) {
                Some(_) => {
                    let mut attr = *self;
                    attr.base_mr = below(over.cast_mut().cast()).cast();
                    room.insert(attr)
                }
                None => self,
            }
        }
    }
}

/// Copies of an `fi_info` and of those of its attributes that name objects.
#[derive(Default)]
pub(super) struct InfoRoom {
    info: Option<fi_info>,
    fabric: Option<fi_fabric_attr>,
    domain: Option<fi_domain_attr>,
}

impl Argument for *mut fi_info {
    type Room = InfoRoom;

    unsafe fn lowered(self, room: &mut InfoRoom) -> Self {
        /// The object below one that is wrapped; pointers of results may be stale, so that they are
        /// looked up and not followed.
        fn wrapped<T>(object: *mut T) -> Option<*mut T> {
            let below = registry::below(object.addr())?;
            Some(std::ptr::with_exposed_provenance_mut(below))
        }
        // SAFETY: the caller vouches for the structure and its attributes.
        unsafe {
            let Some(info) = self.as_ref() else {
                return self;
            };
            let handle = wrapped(info.handle);
            let fabric = info.fabric_attr.as_ref();
            let fabric = fabric.and_then(|attr| Some((attr, wrapped(attr.fabric)?)));
            let domain = info.domain_attr.as_ref();
            let domain = domain.and_then(|attr| Some((attr, wrapped(attr.domain)?)));
            if handle.is_none() && fabric.is_none() && domain.is_none() {
                return self;
            }
            let mut copy = *info;
            if let Some(handle) = handle {
                copy.handle = handle;
            }
            if let Some((attr, fabric)) = fabric {
                let mut attr = *attr;
                attr.fabric = fabric;
                copy.fabric_attr = room.fabric.insert(attr);
            }
            if let Some((attr, domain)) = domain {
                let mut attr = *attr;
                attr.domain = domain;
                copy.domain_attr = room.domain.insert(attr);
            }
            room.info.insert(copy)
        }
    }
}
