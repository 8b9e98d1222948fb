//! Compares every operation on every datatype with the same operation written out in Rust.

use std::sync::atomic::{AtomicU64, Ordering};

use super::values::ComplexPart;
use super::*;
use crate::buffer::AppIov;

/// Aligned memory for targets at any alignment.
#[repr(align(32))]
struct Room([u8; 4096]);

impl Room {
    fn new() -> Self {
        Room([0xa5; 4096])
    }

    fn target(&mut self, offset: usize, len: usize) -> AppIov {
        let bytes = &mut self.0[offset..offset + len];
        // SAFETY: each test keeps the bytes until `apply` has returned.
        unsafe { AppIov::from_raw(bytes.as_mut_ptr(), len) }
    }
}

fn bytes_of<R: Raw>(values: &[R]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    for (value, bytes) in values.iter().zip(bytes.chunks_exact_mut(size_of::<R>())) {
        value.to_bytes(bytes);
    }
    bytes
}

/// Applies `op` to all combinations of `samples`, at offset `shift`, and compares
/// with `expected`, which gets (old, operand, compare) and returns the new value.
fn check<V: Value>(
    op: Op,
    datatype: Datatype,
    shift: usize,
    samples: &[V],
    expected: impl Fn(V, V, V) -> V,
) {
    // Miri is slow: there a few of them stand for all.
    let samples = if cfg!(miri) {
        &samples[samples.len().saturating_sub(3)..]
    } else {
        samples
    };
    let mut cases = Vec::new();
    for &old in samples {
        for &operand in samples {
            let rotated = samples[cases.len() % samples.len()];
            for compare in [old, rotated] {
                cases.push((old, operand, compare));
            }
        }
    }
    let raw = |part: fn(&(V, V, V)) -> V| -> Vec<V::Raw> {
        cases.iter().map(|case| part(case).to_raw()).collect()
    };
    let old = bytes_of(&raw(|case| case.0));
    let operand = bytes_of(&raw(|case| case.1));
    let compare = bytes_of(&raw(|case| case.2));
    let new: Vec<V::Raw> = cases
        .iter()
        .map(|&(old, operand, compare)| expected(old, operand, compare).to_raw())
        .collect();

    let mut room = Room::new();
    room.0[shift..shift + old.len()].copy_from_slice(&old);
    let mut result = vec![0; old.len()];
    let target = room.target(shift, old.len());
    apply(op, datatype, &target, &operand, &compare, &mut result).unwrap();
    assert_eq!(result, old, "{op:?} {datatype:?}: what was fetched");
    let written = &room.0[shift..shift + old.len()];
    for (at, expected) in new.iter().enumerate() {
        let (old, operand, compare) = cases[at];
        assert!(
            V::Raw::at(written, at * size_of::<V::Raw>()) == *expected,
            "{op:?} {datatype:?}: old {:x?}, operand {:x?}, compare {:x?}",
            bytes_of(&[old.to_raw()]),
            bytes_of(&[operand.to_raw()]),
            bytes_of(&[compare.to_raw()]),
        );
    }
    let (before, behind) = (&room.0[..shift], &room.0[shift + old.len()..]);
    assert!(before == vec![0xa5; before.len()] && behind == vec![0xa5; behind.len()]);
}

macro_rules! check_integer {
    ($datatype:ident, $type:ty) => {{
        let samples: &[$type] = &[0, 1, 2, 7, 0x55, <$type>::MAX, <$type>::MIN, !0, !6];
        let truth = |truth: bool| truth as $type;
        for shift in [0, 1, 8] {
            let all = |op, expected: fn($type, $type, $type) -> $type| {
                check(op, Datatype::$datatype, shift, samples, expected)
            };
            all(Op::Min, |old, new, _| old.min(new));
            all(Op::Max, |old, new, _| old.max(new));
            all(Op::Sum, |old, new, _| old.wrapping_add(new));
            all(Op::Diff, |old, new, _| old.wrapping_sub(new));
            all(Op::Prod, |old, new, _| old.wrapping_mul(new));
            all(Op::Bor, |old, new, _| old | new);
            all(Op::Band, |old, new, _| old & new);
            all(Op::Bxor, |old, new, _| old ^ new);
            all(Op::Read, |old, _, _| old);
            all(Op::Write, |_, new, _| new);
            all(Op::Cswap, |old, new, c| if c == old { new } else { old });
            all(Op::CswapNe, |old, new, c| if c != old { new } else { old });
            all(Op::CswapLe, |old, new, c| if c <= old { new } else { old });
            all(Op::CswapLt, |old, new, c| if c < old { new } else { old });
            all(Op::CswapGe, |old, new, c| if c >= old { new } else { old });
            all(Op::CswapGt, |old, new, c| if c > old { new } else { old });
            all(Op::Mswap, |old, new, c| (new & c) | (old & !c));
            let logical = |op, expected: fn(bool, bool) -> bool| {
                check(op, Datatype::$datatype, shift, samples, |old, new, _| {
                    truth(expected(old != 0, new != 0))
                })
            };
            logical(Op::Lor, |a, b| a || b);
            logical(Op::Land, |a, b| a && b);
            logical(Op::Lxor, |a, b| a != b);
        }
    }};
}

#[test]
fn integers_of_all_sizes() {
    check_integer!(Int8, i8);
    check_integer!(Uint8, u8);
    check_integer!(Int16, i16);
    check_integer!(Uint16, u16);
    check_integer!(Int32, i32);
    check_integer!(Uint32, u32);
    check_integer!(Int64, i64);
    check_integer!(Uint64, u64);
    // Sixteen bytes are accessed at once by inline assembly, which miri does not have.
    #[cfg(not(miri))]
    {
        check_integer!(Int128, i128);
        check_integer!(Uint128, u128);
    }
}

/// Checks the operations of a real type, given conversions from and to `f64`; the samples are
/// chosen such that `f64` computes the results exactly.
fn check_real<V: Value>(datatype: Datatype, from: fn(f64) -> V, to: fn(V) -> f64) {
    let samples: Vec<V> = [
        0.0,
        1.0,
        -1.0,
        0.5,
        3.0,
        -6.0,
        12.0,
        f64::NAN,
        f64::INFINITY,
    ]
    .into_iter()
    .map(from)
    .filter(|&value| datatype != Datatype::Float8E4M3 || to(value).is_finite())
    .collect();
    let finite: Vec<V> = samples
        .iter()
        .copied()
        .filter(|&value| to(value).is_finite())
        .collect();
    for shift in [0, 1, 8] {
        let arithmetic = |op, expected: fn(f64, f64) -> f64| {
            check(op, datatype, shift, &finite, |old, new, _| {
                from(expected(to(old), to(new)))
            })
        };
        arithmetic(Op::Sum, |old, new| old + new);
        arithmetic(Op::Diff, |old, new| old - new);
        arithmetic(Op::Prod, |old, new| old * new);
        let logical = |op, expected: fn(bool, bool) -> bool| {
            check(op, datatype, shift, &samples, |old, new, _| {
                from(expected(to(old) != 0.0, to(new) != 0.0) as u8 as f64)
            })
        };
        logical(Op::Lor, |a, b| a || b);
        logical(Op::Land, |a, b| a && b);
        logical(Op::Lxor, |a, b| a != b);
        let choice = |op, expected: fn(f64, f64, f64) -> bool| {
            check(
                op,
                datatype,
                shift,
                &samples,
                |old, new, compare| match expected(to(old), to(new), to(compare)) {
                    true => new,
                    false => old,
                },
            )
        };
        choice(Op::Min, |old, new, _| new < old);
        choice(Op::Max, |old, new, _| new > old);
        choice(Op::Read, |_, _, _| false);
        choice(Op::Write, |_, _, _| true);
        choice(Op::Cswap, |old, _, c| c == old);
        choice(Op::CswapNe, |old, _, c| c != old);
        choice(Op::CswapLe, |old, _, c| c <= old);
        choice(Op::CswapLt, |old, _, c| c < old);
        choice(Op::CswapGe, |old, _, c| c >= old);
        choice(Op::CswapGt, |old, _, c| c > old);
    }
}

#[test]
fn real_numbers_of_all_sizes() {
    check_real::<f32>(Datatype::Float, |v| v as f32, |v| v as f64);
    check_real::<f64>(Datatype::Double, |v| v, |v| v);
    check_real::<Float16>(Datatype::Float16, narrow, wide);
    check_real::<BFloat16>(Datatype::BFloat16, narrow, wide);
    check_real::<Float8E4M3>(Datatype::Float8E4M3, narrow, wide);
    check_real::<Float8E5M2>(Datatype::Float8E5M2, narrow, wide);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    check_real::<long_double::LongDouble>(Datatype::LongDouble, Into::into, |v| v.to_f64());
}

/// Conversions of the narrow formats.
fn narrow<V: narrow_float::Narrow>(value: f64) -> V {
    V::from_f64(value)
}

fn wide<V: narrow_float::Narrow>(value: V) -> f64 {
    value.to_f64()
}

fn check_complex<T: ComplexPart>(datatype: Datatype, from: fn(f64) -> T, to: fn(T) -> f64)
where
    Complex<T>: Value<Raw = T::Pair>,
{
    type Pair = (f64, f64);
    let join = |(re, im): Pair| Complex {
        re: from(re),
        im: from(im),
    };
    let split = |value: Complex<T>| -> Pair { (to(value.re), to(value.im)) };
    let samples: Vec<Complex<T>> = [(0.0, 0.0), (1.0, 0.0), (0.0, -2.0), (3.0, 0.5), (-1.5, 4.0)]
        .into_iter()
        .map(join)
        .collect();
    for shift in [0, 1, 8] {
        let all = |op, expected: fn(Pair, Pair, Pair) -> Pair| {
            check(op, datatype, shift, &samples, |old, new, compare| {
                join(expected(split(old), split(new), split(compare)))
            })
        };
        all(Op::Sum, |a, b, _| (a.0 + b.0, a.1 + b.1));
        all(Op::Diff, |a, b, _| (a.0 - b.0, a.1 - b.1));
        all(Op::Prod, |a, b, _| {
            (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
        });
        all(Op::Read, |a, _, _| a);
        all(Op::Write, |_, b, _| b);
        all(Op::Cswap, |a, b, c| if c == a { b } else { a });
        all(Op::CswapNe, |a, b, c| if c != a { b } else { a });
        const NONE: Pair = (0.0, 0.0);
        let logical = |op, expected: fn(bool, bool) -> bool| {
            check(op, datatype, shift, &samples, |old, new, _| {
                join((
                    expected(split(old) != NONE, split(new) != NONE) as u8 as f64,
                    0.0,
                ))
            })
        };
        logical(Op::Lor, |a, b| a || b);
        logical(Op::Land, |a, b| a && b);
        logical(Op::Lxor, |a, b| a != b);
    }
}

#[test]
fn complex_numbers_of_all_sizes() {
    check_complex::<f32>(Datatype::FloatComplex, |v| v as f32, |v| v as f64);
    // As for integers of sixteen bytes.
    #[cfg(not(miri))]
    check_complex::<f64>(Datatype::DoubleComplex, |v| v, |v| v);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    check_complex::<long_double::LongDouble>(Datatype::LongDoubleComplex, Into::into, |v| {
        v.to_f64()
    });
}

#[test]
fn the_numbers_are_those_of_the_c_enumerations() {
    for (number, datatype) in Datatype::ALL.iter().enumerate() {
        assert_eq!(datatype.number() as usize, number);
        assert_eq!(Datatype::from_number(number as u32), Some(*datatype));
    }
    assert_eq!(Datatype::Uint64.number(), fabric_abi::FI_UINT64);
    assert_eq!(Datatype::Uint128.number(), fabric_abi::FI_UINT128);
    assert_eq!(
        Datatype::ALL.last().map(|last| last.number()),
        Some(fabric_abi::FI_FLOAT8_E5M2)
    );
    for (number, op) in Op::ALL.iter().enumerate() {
        assert_eq!(op.number() as usize, number);
    }
    assert_eq!(Op::Write.number(), fabric_abi::FI_ATOMIC_WRITE);
    assert_eq!(Op::Mswap.number(), fabric_abi::FI_MSWAP);
    assert_eq!(
        Op::ALL.last().map(|last| last.number()),
        Some(fabric_abi::FI_DIFF)
    );
    assert_eq!(Datatype::from_number(256), None);
    assert_eq!(Op::from_number(u32::MAX), None);
}

#[test]
fn a_query_returns_which_operations_the_calls_accept() {
    let ask = |datatype: Datatype, op: Op, flags| {
        query(datatype.number(), op.number(), flags, &Offered::up_to(4096))
    };
    let attr = |count, size| Ok(AtomicAttr { count, size });
    assert_eq!(ask(Datatype::Uint64, Op::Sum, 0), attr(512, 8));
    let longest = match cfg!(target_arch = "x86_64") {
        true => attr(128, 32),
        // Not offered there.
        false => Err(Errno::EOPNOTSUPP),
    };
    assert_eq!(
        ask(Datatype::LongDoubleComplex, Op::Read, FI_FETCH_ATOMIC),
        longest
    );
    assert_eq!(
        ask(Datatype::Uint8, Op::Mswap, FI_COMPARE_ATOMIC),
        attr(4096, 1)
    );
    for (datatype, op, flags) in [
        (Datatype::Uint64, Op::Read, 0),
        (Datatype::Uint64, Op::Cswap, FI_FETCH_ATOMIC),
        (Datatype::Uint64, Op::Sum, FI_COMPARE_ATOMIC),
        (Datatype::Double, Op::Bor, 0),
        (Datatype::DoubleComplex, Op::Max, 0),
        (Datatype::FloatComplex, Op::CswapLt, FI_COMPARE_ATOMIC),
        (Datatype::Uint64, Op::Write, FI_TAGGED),
    ] {
        assert_eq!(ask(datatype, op, flags), Err(Errno::EOPNOTSUPP));
    }
    let both = FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC;
    assert_eq!(ask(Datatype::Int8, Op::Sum, both), Err(Errno::EBADFLAGS));
    assert_eq!(ask(Datatype::Int8, Op::Sum, 1), Err(Errno::EBADFLAGS));
    assert_eq!(
        query(256, 0, 0, &Offered::up_to(4096)),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(
        query(0, 256, 0, &Offered::up_to(4096)),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn peers_of_the_c_library_get_no_operation_that_they_lack() {
    let offered = Offered::common(1256);
    let has = |datatype: Datatype, op: Op, flags| {
        query(datatype.number(), op.number(), flags, &offered).is_ok()
    };
    assert!(has(Datatype::FloatComplex, Op::Sum, FI_FETCH_ATOMIC));
    assert!(has(Datatype::Uint64, Op::Mswap, FI_COMPARE_ATOMIC));
    assert!(!has(Datatype::Uint64, Op::Diff, 0));
    for lacking in [
        Datatype::DoubleComplex,
        Datatype::LongDouble,
        Datatype::LongDoubleComplex,
        Datatype::Int128,
    ] {
        assert!(!has(lacking, Op::Sum, 0), "{lacking:?}");
    }
}

#[test]
fn lengths_that_do_not_fit_change_nothing() {
    let mut room = Room::new();
    let target = room.target(0, 16);
    let mut result = [0; 16];
    for (op, operand, compare, fetched) in [
        (Op::Sum, 8, 0, 0),
        (Op::Sum, 24, 0, 0),
        (Op::Sum, 16, 0, 8),
        (Op::Cswap, 16, 8, 16),
        (Op::Read, 0, 0, 15),
    ] {
        let operand = &[1; 24][..operand];
        let compare = &[1; 24][..compare];
        let result = &mut result[..fetched];
        let outcome = apply(op, Datatype::Uint64, &target, operand, compare, result);
        assert_eq!(outcome, Err(Errno::EINVAL));
    }
    let split = room.target(0, 12);
    let outcome = apply(Op::Sum, Datatype::Uint64, &split, &[1; 12], &[], &mut []);
    assert_eq!(outcome, Err(Errno::EINVAL));
    let outcome = apply(
        Op::Max,
        Datatype::DoubleComplex,
        &target,
        &[1; 16],
        &[],
        &mut [],
    );
    assert_eq!(outcome, Err(Errno::EOPNOTSUPP));
    assert!(room.0.iter().all(|&byte| byte == 0xa5));
}

#[test]
fn elements_spread_over_several_buffers_are_updated_whole() {
    let mut room = Room::new();
    room.0.fill(0);
    let base = room.0.as_mut_ptr();
    let piece = |at: usize, len| libc::iovec {
        iov_base: base.wrapping_add(at).cast(),
        iov_len: len,
    };
    // 24 bytes; the second element lies in three of the segments.
    let pieces = [piece(0, 10), piece(100, 3), piece(200, 4), piece(300, 7)];
    // SAFETY: the pieces describe memory in `room`, which outlives the call.
    let target = unsafe { AppIov::from_iov(pieces.as_ptr(), pieces.len()) }.unwrap();
    let operand = bytes_of(&[u64::MAX, 0x0102_0304_0506_0708, 3]);
    apply(Op::Sum, Datatype::Uint64, &target, &operand, &[], &mut []).unwrap();
    let mut result = [0; 24];
    apply(
        Op::Sum,
        Datatype::Uint64,
        &target,
        &operand,
        &[],
        &mut result,
    )
    .unwrap();
    assert_eq!(result[..], operand[..]);
    apply(Op::Read, Datatype::Uint64, &target, &[], &[], &mut result).unwrap();
    assert_eq!(
        result[..],
        bytes_of(&[u64::MAX - 1, 0x0204_0608_0a0c_0e10, 6])
    );
    assert_eq!(room.0[100..104], [0x0c, 0x0a, 0x08, 0]);
}

#[test]
fn updates_mix_with_the_threads_own_atomics() {
    const EACH: u64 = if cfg!(miri) { 200 } else { 20_000 };
    let cell = AtomicU64::new(0);
    // SAFETY: the cell outlives the threads, and all of them access it atomically.
    let target = unsafe { AppIov::from_raw(cell.as_ptr().cast(), 8) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..EACH {
                cell.fetch_add(1, Ordering::Relaxed);
            }
        });
        let one = 1u64.to_ne_bytes();
        for _ in 0..EACH {
            apply(Op::Sum, Datatype::Uint64, &target, &one, &[], &mut []).unwrap();
        }
    });
    assert_eq!(cell.into_inner(), 2 * EACH);
}

#[test]
#[cfg_attr(miri, ignore = "miri has no inline assembly")]
fn sixteen_and_thirty_two_byte_elements_are_updated_atomically() {
    const EACH: u64 = 5_000;
    let aligned_and_not = [
        (Datatype::Uint128, 0),
        (Datatype::Uint128, 8),
        (Datatype::LongDouble, 16),
        (Datatype::LongDoubleComplex, 0),
    ];
    for (datatype, shift) in aligned_and_not {
        if !Op::Sum.supports(datatype) {
            continue;
        }
        let size = datatype.size();
        let one = match datatype {
            Datatype::Uint128 => 1u128,
            _ => 0x3fff_8000_0000_0000_0000,
        };
        let mut operand = vec![0; size];
        operand[..16].copy_from_slice(&one.to_ne_bytes());
        let mut room = Room::new();
        room.0.fill(0);
        let target = room.target(shift, size);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        apply(Op::Sum, datatype, &target, &operand, &[], &mut []).unwrap();
                    }
                });
            }
        });
        let sum = u128::at(&room.0, shift);
        match datatype {
            Datatype::Uint128 => assert_eq!(sum, 2 * EACH as u128),
            #[cfg(target_arch = "x86_64")]
            _ => assert_eq!(sum, long_double::LongDouble::from(2.0 * EACH as f64).0),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("not supported"),
        }
    }
}
