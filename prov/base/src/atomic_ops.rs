//! Atomic operations on memory, as fi_atomic(3) defines them: every operation on
//! every datatype for which it makes sense.
//!
//! Single elements are updated atomically, also towards the application's own
//! threads as long as those use the processor's atomic instructions: an element
//! of up to 8 bytes (16 where the processor can) at its natural alignment is
//! updated by compare-and-exchange. Other elements (unaligned, split between two
//! buffers, 32 bytes long) are atomic only among the operations of this library
//! in this process; those share one lock.
//!
//! `long double` is the x87 format of 80 bits in 16 bytes; on other processors
//! the types made of it are not supported.

mod cell;
mod compute;
#[cfg(target_arch = "x86_64")]
mod long_double;
mod narrow_float;
mod raw;
mod split_lock;
mod target;
mod values;

#[cfg(test)]
mod tests;

use fabric_abi::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC, FI_TAGGED};

pub use split_lock::share as share_with_other_copies;

use crate::buffer::Iov;
use crate::errno::{Errno, Result};
use compute::{Value, compute};
use narrow_float::{BFloat16, Float8E4M3, Float8E5M2, Float16};
use raw::Raw;
use values::Complex;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $constant:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $(#[doc = concat!("`", $constant, "`")] $variant,)*
        }

        impl $name {
            /// All values, in the order of their numbers, which start at 0.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Returns the value with this number, which comes from an application or a peer.
            pub fn from_number(number: u32) -> Option<Self> {
                Self::ALL.get(number as usize).copied()
            }

            /// The number in C and on the wire.
            pub fn number(self) -> u32 {
                self as u32
            }
        }
    };
}

numbered! {
    /// `enum fi_datatype`.
    Datatype {
        Int8 = "FI_INT8",
        Uint8 = "FI_UINT8",
        Int16 = "FI_INT16",
        Uint16 = "FI_UINT16",
        Int32 = "FI_INT32",
        Uint32 = "FI_UINT32",
        Int64 = "FI_INT64",
        Uint64 = "FI_UINT64",
        Float = "FI_FLOAT",
        Double = "FI_DOUBLE",
        FloatComplex = "FI_FLOAT_COMPLEX",
        DoubleComplex = "FI_DOUBLE_COMPLEX",
        LongDouble = "FI_LONG_DOUBLE",
        LongDoubleComplex = "FI_LONG_DOUBLE_COMPLEX",
        Int128 = "FI_INT128",
        Uint128 = "FI_UINT128",
        Float16 = "FI_FLOAT16",
        BFloat16 = "FI_BFLOAT16",
        Float8E4M3 = "FI_FLOAT8_E4M3",
        Float8E5M2 = "FI_FLOAT8_E5M2",
    }
}

numbered! {
    /// `enum fi_op`.
    Op {
        Min = "FI_MIN",
        Max = "FI_MAX",
        Sum = "FI_SUM",
        Prod = "FI_PROD",
        Lor = "FI_LOR",
        Land = "FI_LAND",
        Bor = "FI_BOR",
        Band = "FI_BAND",
        Lxor = "FI_LXOR",
        Bxor = "FI_BXOR",
        Read = "FI_ATOMIC_READ",
        Write = "FI_ATOMIC_WRITE",
        Cswap = "FI_CSWAP",
        CswapNe = "FI_CSWAP_NE",
        CswapLe = "FI_CSWAP_LE",
        CswapLt = "FI_CSWAP_LT",
        CswapGe = "FI_CSWAP_GE",
        CswapGt = "FI_CSWAP_GT",
        Mswap = "FI_MSWAP",
        Diff = "FI_DIFF",
    }
}

/// The family of calls through which an operation is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `fi_atomic`: nothing is returned.
    Base,
    /// `fi_fetch_atomic`: the old value is returned.
    Fetch,
    /// `fi_compare_atomic`: a comparand is sent, the old value is returned.
    Compare,
}

/// `struct fi_atomic_attr`: the limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAttr {
    /// Largest number of elements in one call.
    pub count: usize,
    /// Bytes per element.
    pub size: usize,
}

/// The kind of number, which decides the operations that are defined for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Integer,
    Real,
    Complex,
    /// Not supported on this processor.
    Missing,
}

impl Datatype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        use Datatype::*;
        match self {
            Int8 | Uint8 | Float8E4M3 | Float8E5M2 => 1,
            Int16 | Uint16 | Float16 | BFloat16 => 2,
            Int32 | Uint32 | Float => 4,
            Int64 | Uint64 | Double | FloatComplex => 8,
            Int128 | Uint128 | LongDouble | DoubleComplex => 16,
            LongDoubleComplex => 32,
        }
    }

    fn class(self) -> Class {
        use Datatype::*;
        match self {
            Int8 | Uint8 | Int16 | Uint16 | Int32 | Uint32 | Int64 | Uint64 | Int128 | Uint128 => {
                Class::Integer
            }
            LongDouble | LongDoubleComplex if !cfg!(target_arch = "x86_64") => Class::Missing,
            Float | Double | LongDouble | Float16 | BFloat16 | Float8E4M3 | Float8E5M2 => {
                Class::Real
            }
            FloatComplex | DoubleComplex | LongDoubleComplex => Class::Complex,
        }
    }
}

impl Op {
    /// Whether the operation can be requested through these calls (fi_atomic(3)).
    pub fn has_form(self, form: Form) -> bool {
        use Op::*;
        match self {
            Cswap | CswapNe | CswapLe | CswapLt | CswapGe | CswapGt | Mswap => {
                form == Form::Compare
            }
            Read => form == Form::Fetch,
            _ => form != Form::Compare,
        }
    }

    /// Whether the operation is defined for the datatype, on this processor.
    pub fn supports(self, datatype: Datatype) -> bool {
        use Op::*;
        let class = datatype.class();
        match self {
            _ if class == Class::Missing => false,
            Bor | Band | Bxor | Mswap => class == Class::Integer,
            Min | Max | CswapLe | CswapLt | CswapGe | CswapGt => class != Class::Complex,
            Sum | Prod | Diff | Lor | Land | Lxor | Read | Write | Cswap | CswapNe => true,
        }
    }

    /// Whether the operation may change its target.
    pub fn writes(self) -> bool {
        self != Op::Read
    }

    /// Whether the operation reads an operand of the caller.
    pub fn takes_operand(self) -> bool {
        self != Op::Read
    }
}

impl Form {
    const ALL: [Form; 3] = [Form::Base, Form::Fetch, Form::Compare];

    /// The number of the form in messages between peers.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the form with this number, if there is one.
    pub fn of_code(code: u8) -> Option<Form> {
        Form::ALL.get(usize::from(code)).copied()
    }

    /// Returns the family of calls that the flags of `fi_query_atomic` name; `-FI_EBADFLAGS` if
    /// both flags are set or unknown ones, `-FI_EOPNOTSUPP` for tagged targets.
    pub fn from_flags(flags: u64) -> Result<Self> {
        if flags & !(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED) != 0 {
            return Err(Errno::EBADFLAGS);
        }
        let form = match (flags & FI_FETCH_ATOMIC != 0, flags & FI_COMPARE_ATOMIC != 0) {
            (false, false) => Form::Base,
            (true, false) => Form::Fetch,
            (false, true) => Form::Compare,
            (true, true) => return Err(Errno::EBADFLAGS),
        };
        match flags & FI_TAGGED {
            0 => Ok(form),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// The atomic operations that a provider offers.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Largest number of bytes of operands in one call; 0 if the provider offers none.
    pub bytes: usize,
    /// Whether the provider offers an operation, out of those that fi_atomic(3) defines: by
    /// datatype, operation and the flags of `fi_query_atomic`.
    pub filter: fn(fabric_abi::fi_datatype, fabric_abi::fi_op, u64) -> bool,
}

impl Offered {
    /// No atomic operations.
    pub const NONE: Offered = Offered::up_to(0);

    /// All operations, with up to so many bytes of operands.
    pub const fn up_to(bytes: usize) -> Self {
        Offered {
            bytes,
            filter: |_, _, _| true,
        }
    }

    /// The operations that providers of the C library support for messages on a wire, with up to so
    /// many bytes of operands. Such a peer does not check which operation it receives.
    pub const fn common(bytes: usize) -> Self {
        Offered {
            bytes,
            filter: |datatype, op, _| {
                datatype <= fabric_abi::FI_FLOAT_COMPLEX && op <= fabric_abi::FI_MSWAP
            },
        }
    }

    /// Whether this operation is offered for this datatype, in the form that the flags name.
    pub fn has(&self, datatype: u32, op: u32, flags: u64) -> bool {
        (self.filter)(datatype, op, flags)
    }
}

/// Implements `fi_query_atomic` and the `fi_*_atomicvalid` calls (fi_atomic(3)); `-FI_EOPNOTSUPP`
/// for operations that are not offered.
pub fn query(datatype: u32, op: u32, flags: u64, offered: &Offered) -> Result<AtomicAttr> {
    if !offered.has(datatype, op, flags) {
        return Err(Errno::EOPNOTSUPP);
    }
    let max_bytes = offered.bytes;
    let form = Form::from_flags(flags)?;
    let datatype = Datatype::from_number(datatype).ok_or(Errno::EOPNOTSUPP)?;
    let op = Op::from_number(op).ok_or(Errno::EOPNOTSUPP)?;
    let size = datatype.size();
    if !op.has_form(form) || !op.supports(datatype) || size > max_bytes {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(AtomicAttr {
        count: max_bytes / size,
        size,
    })
}

/// Applies `op` to each element of `target`, with the elements of `operand` (ignored by
/// [`Op::Read`]) and, for a compare operation, of `compare`. The old values are stored to `result`
/// unless that is empty.
///
/// `-FI_EOPNOTSUPP` if the operation is not defined for the datatype, `-FI_EINVAL` if the lengths
/// are not the same whole number of elements; no element has been changed then.
pub fn apply(
    op: Op,
    datatype: Datatype,
    target: &Iov<'_>,
    operand: &[u8],
    compare: &[u8],
    result: &mut [u8],
) -> Result {
    check(op, datatype, target.len(), operand, compare, result)?;
    let run = match datatype {
        Datatype::Int8 => apply_to::<i8>,
        Datatype::Uint8 => apply_to::<u8>,
        Datatype::Int16 => apply_to::<i16>,
        Datatype::Uint16 => apply_to::<u16>,
        Datatype::Int32 => apply_to::<i32>,
        Datatype::Uint32 => apply_to::<u32>,
        Datatype::Int64 => apply_to::<i64>,
        Datatype::Uint64 => apply_to::<u64>,
        Datatype::Int128 => apply_to::<i128>,
        Datatype::Uint128 => apply_to::<u128>,
        Datatype::Float => apply_to::<f32>,
        Datatype::Double => apply_to::<f64>,
        Datatype::FloatComplex => apply_to::<Complex<f32>>,
        Datatype::DoubleComplex => apply_to::<Complex<f64>>,
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDouble => apply_to::<long_double::LongDouble>,
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDoubleComplex => apply_to::<Complex<long_double::LongDouble>>,
        #[cfg(not(target_arch = "x86_64"))]
        Datatype::LongDouble | Datatype::LongDoubleComplex => return Err(Errno::EOPNOTSUPP),
        Datatype::Float16 => apply_to::<Float16>,
        Datatype::BFloat16 => apply_to::<BFloat16>,
        Datatype::Float8E4M3 => apply_to::<Float8E4M3>,
        Datatype::Float8E5M2 => apply_to::<Float8E5M2>,
    };
    run(op, target, operand, compare, result);
    Ok(())
}

/// Combines each element of `operand` into that of `target`, for operations with an operand and
/// without a comparand. No other thread may access the memory: the elements are not updated
/// atomically.
///
/// `-FI_EOPNOTSUPP` and `-FI_EINVAL` as for [`apply`].
pub fn combine(op: Op, datatype: Datatype, target: &mut [u8], operand: &[u8]) -> Result {
    if !op.has_form(Form::Base) {
        return Err(Errno::EOPNOTSUPP);
    }
    check(op, datatype, target.len(), operand, &[], &[])?;
    let run = match datatype {
        Datatype::Int8 => combine_to::<i8>,
        Datatype::Uint8 => combine_to::<u8>,
        Datatype::Int16 => combine_to::<i16>,
        Datatype::Uint16 => combine_to::<u16>,
        Datatype::Int32 => combine_to::<i32>,
        Datatype::Uint32 => combine_to::<u32>,
        Datatype::Int64 => combine_to::<i64>,
        Datatype::Uint64 => combine_to::<u64>,
        Datatype::Int128 => combine_to::<i128>,
        Datatype::Uint128 => combine_to::<u128>,
        Datatype::Float => combine_to::<f32>,
        Datatype::Double => combine_to::<f64>,
        Datatype::FloatComplex => combine_to::<Complex<f32>>,
        Datatype::DoubleComplex => combine_to::<Complex<f64>>,
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDouble => combine_to::<long_double::LongDouble>,
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDoubleComplex => combine_to::<Complex<long_double::LongDouble>>,
        #[cfg(not(target_arch = "x86_64"))]
        Datatype::LongDouble | Datatype::LongDoubleComplex => return Err(Errno::EOPNOTSUPP),
        Datatype::Float16 => combine_to::<Float16>,
        Datatype::BFloat16 => combine_to::<BFloat16>,
        Datatype::Float8E4M3 => combine_to::<Float8E4M3>,
        Datatype::Float8E5M2 => combine_to::<Float8E5M2>,
    };
    run(op, target, operand);
    Ok(())
}

fn combine_to<V: Value>(op: Op, target: &mut [u8], operand: &[u8]) {
    // The operation is matched once, outside the loop, so that each operation gets a loop of its
    // own.
    macro_rules! for_each {
        ($($op:ident),*) => {
            match op {
                $(Op::$op => combine_each::<V>(Op::$op, target, operand),)*
                op => combine_each::<V>(op, target, operand),
            }
        };
    }
    for_each!(Min, Max, Sum, Prod, Lor, Land, Bor, Band, Lxor, Bxor)
}

#[inline(always)]
fn combine_each<V: Value>(op: Op, target: &mut [u8], operand: &[u8]) {
    let size = size_of::<V::Raw>();
    for (target, operand) in target
        .chunks_exact_mut(size)
        .zip(operand.chunks_exact(size))
    {
        let old = V::Raw::at(target, 0);
        let operand = V::Raw::at(operand, 0);
        if let Some(new) = compute::<V>(op, old, operand, operand) {
            new.put(target, 0);
        }
    }
}

/// Whether the arguments of [`apply`] are valid for a target of `len` bytes.
pub fn check(
    op: Op,
    datatype: Datatype,
    len: usize,
    operand: &[u8],
    compare: &[u8],
    result: &[u8],
) -> Result {
    if !op.supports(datatype) {
        return Err(Errno::EOPNOTSUPP);
    }
    let whole = len.is_multiple_of(datatype.size());
    let operand_fits = operand.len() == len || !op.takes_operand();
    let compare_fits = compare.len() == len || !op.has_form(Form::Compare);
    let result_fits = result.len() == len || result.is_empty();
    match whole && operand_fits && compare_fits && result_fits {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

fn apply_to<V: Value>(op: Op, target: &Iov<'_>, operand: &[u8], compare: &[u8], result: &mut [u8]) {
    target::update_each::<V::Raw>(target, |offset, old| {
        let operand = V::Raw::at(operand, offset);
        let compare = V::Raw::at(compare, offset);
        let new = compute::<V>(op, old, operand, compare);
        // If the update has to be repeated, the newer old value overwrites this one.
        old.put(result, offset);
        new
    });
}
