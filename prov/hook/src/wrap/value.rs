//! Arguments of calls as values.

use std::ffi::{c_char, c_int, c_void};

use fabric_abi::*;
use libc::iovec;

/// An argument.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Number(u64),
    Count(usize),
    Signed(i64),
    Pointer(*const c_void),
    Text(*const c_char),
    Vector(*const iovec),
    Elements(*const fi_ioc),
    Msg(*const fi_msg),
    Tagged(*const fi_msg_tagged),
    Rma(*const fi_msg_rma),
    Atomic(*const fi_msg_atomic),
    Collective(*const fi_msg_collective),
    Memory(*const fi_mr_attr),
    /// A structure of the interface that fi_tostr(3) knows.
    Structure(*const c_void, fi_type),
    /// The place for an object that is opened.
    Opened(*const *mut fid),
}

impl Value {
    /// Returns the address in a pointer, or a number as one.
    pub fn address(self) -> usize {
        match self {
            Value::Number(number) => number as usize,
            Value::Count(count) => count,
            Value::Signed(number) => number as usize,
            Value::Pointer(pointer) | Value::Structure(pointer, _) => pointer.addr(),
            Value::Text(text) => text.addr(),
            Value::Vector(vector) => vector.addr(),
            Value::Elements(vector) => vector.addr(),
            Value::Msg(msg) => msg.addr(),
            Value::Tagged(msg) => msg.addr(),
            Value::Rma(msg) => msg.addr(),
            Value::Atomic(msg) => msg.addr(),
            Value::Collective(msg) => msg.addr(),
            Value::Memory(attr) => attr.addr(),
            Value::Opened(place) => place.addr(),
        }
    }
}

/// A type of arguments, as a value.
pub(super) trait Shown: Copy {
    fn value(self) -> Value;
}

macro_rules! shown {
    ($($type:ty => |$argument:ident| $value:expr;)*) => {
        $(
            impl Shown for $type {
                #[inline(always)]
                fn value(self) -> Value {
                    let $argument = self;
                    $value
                }
            }
        )*
    };
}

shown! {
    u64 => |number| Value::Number(number);
    usize => |count| Value::Count(count);
    u32 => |number| Value::Count(number as usize);
    c_int => |number| Value::Signed(number.into());
    *const c_char => |text| Value::Text(text);
    *const iovec => |vector| Value::Vector(vector);
    *const fi_ioc => |vector| Value::Elements(vector);
    *const fi_msg => |msg| Value::Msg(msg);
    *const fi_msg_tagged => |msg| Value::Tagged(msg);
    *const fi_msg_rma => |msg| Value::Rma(msg);
    *const fi_msg_atomic => |msg| Value::Atomic(msg);
    *const fi_msg_collective => |msg| Value::Collective(msg);
    *const fi_mr_attr => |attr| Value::Memory(attr);
    *mut fi_info => |info| Value::Structure(info.cast_const().cast(), FI_TYPE_INFO);
    *mut fi_cq_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_CQ_ATTR);
    *mut fi_cntr_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_CNTR_ATTR);
    *mut fi_av_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_AV_ATTR);
    *mut fi_tx_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_TX_ATTR);
    *mut fi_rx_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_RX_ATTR);
}

macro_rules! shown_as_pointers {
    ($($type:ty),* $(,)?) => {
        $(
            impl Shown for $type {
                #[inline(always)]
                fn value(self) -> Value {
                    Value::Pointer(self.cast::<c_void>().cast_const())
                }
            }
        )*
    };
}

shown_as_pointers!(
    *mut c_void,
    *mut c_char,
    *mut usize,
    *mut u32,
    *mut u64,
    *mut *mut c_void,
    *mut *mut fid,
    *mut fi_ioc,
    *mut fi_cq_err_entry,
    *mut fi_eq_err_entry,
    *mut fi_eq_attr,
    *mut fi_wait_attr,
    *mut fi_poll_attr,
    *mut fi_av_set_attr,
    *mut fi_atomic_attr,
    *mut fi_collective_attr,
    *mut fi_xpu_attr,
    *mut fi_xpu_ctx_attr,
    *mut fid_xpu_cq,
    *mut fid_xpu_cntr,
    *mut fid_xpu_ep,
    *mut fid,
    *mut fid_xpu_ctx,
);

impl Shown for *const c_void {
    #[inline(always)]
    fn value(self) -> Value {
        Value::Pointer(self)
    }
}

impl Shown for *const fid_av_set {
    #[inline(always)]
    fn value(self) -> Value {
        Value::Pointer(self.cast())
    }
}

macro_rules! shown_as_places {
    ($($object:ident),*) => {
        $(
            impl Shown for *mut *mut $object {
                #[inline(always)]
                fn value(self) -> Value {
                    Value::Opened(self.cast_const().cast())
                }
            }
        )*
    };
}

shown_as_places!(
    fid_domain,
    fid_pep,
    fid_eq,
    fid_wait,
    fid_av,
    fid_cq,
    fid_ep,
    fid_cntr,
    fid_poll,
    fid_stx,
    fid_mr,
    fid_av_set,
    fid_mc,
    fid_xpu_ctx
);
