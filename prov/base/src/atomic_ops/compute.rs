//! The results of the operations, from an old value, an operand and a comparand.

use super::Op;
use super::raw::Raw;

/// A number as the operations see it.
pub(super) trait Value: Copy {
    /// Its image in memory.
    type Raw: Raw;

    fn from_raw(raw: Self::Raw) -> Self;
    fn to_raw(self) -> Self::Raw;

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;

    /// One or zero, for the result of a logical operation.
    fn from_truth(truth: bool) -> Self;
    /// Whether C treats the number as true.
    fn is_true(self) -> bool;

    fn equals(self, other: Self) -> bool;
    /// Whether `self < other`; false for numbers without an order.
    fn is_less(self, other: Self) -> bool;
}

/// Returns the new value of an element that holds `old`; `None` leaves the element unchanged.
#[inline]
pub(super) fn compute<V: Value>(
    op: Op,
    old: V::Raw,
    operand: V::Raw,
    compare: V::Raw,
) -> Option<V::Raw> {
    let value = V::from_raw;
    let logical = |truth| Some(V::from_truth(truth).to_raw());
    let swap_if = |condition: bool| condition.then_some(operand);
    match op {
        Op::Min => swap_if(value(operand).is_less(value(old))),
        Op::Max => swap_if(value(old).is_less(value(operand))),
        Op::Sum => Some(value(old).add(value(operand)).to_raw()),
        Op::Diff => Some(value(old).subtract(value(operand)).to_raw()),
        Op::Prod => Some(value(old).multiply(value(operand)).to_raw()),
        Op::Lor => logical(value(old).is_true() || value(operand).is_true()),
        Op::Land => logical(value(old).is_true() && value(operand).is_true()),
        Op::Lxor => logical(value(old).is_true() != value(operand).is_true()),
        Op::Bor => Some(old.or(operand)),
        Op::Band => Some(old.and(operand)),
        Op::Bxor => Some(old.xor(operand)),
        Op::Read => None,
        Op::Write => Some(operand),
        Op::Cswap => swap_if(value(compare).equals(value(old))),
        Op::CswapNe => swap_if(!value(compare).equals(value(old))),
        Op::CswapLt => swap_if(value(compare).is_less(value(old))),
        Op::CswapGt => swap_if(value(old).is_less(value(compare))),
        // These are not the negations of the other two comparisons: neither holds for a NaN.
        Op::CswapLe => {
            swap_if(value(compare).is_less(value(old)) || value(compare).equals(value(old)))
        }
        Op::CswapGe => {
            swap_if(value(old).is_less(value(compare)) || value(compare).equals(value(old)))
        }
        Op::Mswap => Some(operand.and(compare).or(old.and(compare.not()))),
    }
}
