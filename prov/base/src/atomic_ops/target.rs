//! Atomic updates of elements in application memory, which other threads may be
//! updating at the same time.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::cell::Cell;
use super::raw::{Raw, Wide};
use super::split_lock;
use crate::buffer::Iov;

/// Updates each element of `target`: `update` gets the element's byte offset in the target and its
/// value, and returns the new value, or `None` to leave it unchanged. It is called again if another
/// thread has changed the element in the meantime; the result of the last call is stored.
///
/// The target's length is a whole number of elements.
pub(super) fn update_each<R: Raw>(target: &Iov<'_>, mut update: impl FnMut(usize, R) -> Option<R>) {
    if target.has_device() {
        return update_staged(target, update);
    }
    let size = size_of::<R>();
    // Offsets in the target: of the next element, and of the current segment.
    let (mut offset, mut start) = (0, 0);
    for piece in target.pieces() {
        let end = start + piece.iov_len;
        while offset + size <= end {
            let address = piece.iov_base.cast::<u8>().wrapping_add(offset - start);
            // SAFETY: the element lies within a piece of application memory,
            // which belongs to the operation until it completes.
            unsafe { update_element(address, |old| update(offset, old)) };
            offset += size;
        }
        if offset < end {
            update_scattered(&target.slice(offset, size), |old| update(offset, old));
            offset += size;
        }
        start = end;
    }
}

/// Updates elements of which some are in the memory of a device: they are copied, updated, and copied
/// back, with the lock that all such updates of this process take. Accesses of the device itself are
/// not excluded (fi_atomic(3) leaves that to the application).
#[cold]
#[allow(clippy::indexing_slicing, reason = "the widest type is as large")]
fn update_staged<R: Raw>(target: &Iov<'_>, mut update: impl FnMut(usize, R) -> Option<R>) {
    let mut bytes = Vec::new();
    let _guard = split_lock::lock();
    target.append_to(&mut bytes);
    let mut changed = false;
    for (at, element) in bytes.chunks_exact_mut(size_of::<R>()).enumerate() {
        let new = R::from_bytes(element).and_then(|old| update(at * size_of::<R>(), old));
        if let Some(new) = new {
            new.to_bytes(element);
            changed = true;
        }
    }
    if changed {
        target.write_at(0, &bytes);
    }
}

/// # Safety
/// As for [`Cell::update_at`].
unsafe fn update_element<R: Raw>(address: *mut u8, mut update: impl FnMut(R) -> Option<R>) {
    // SAFETY: the caller guarantees that the element is valid, as for `update_at`.
    if unsafe { R::update_at(address, &mut update) }.is_some() {
        return;
    }
    let _guard = split_lock::lock();
    // SAFETY: the caller guarantees that the element is valid for reads; the access assumes no
    // alignment.
    let old = unsafe { address.cast::<R>().read_unaligned() };
    if let Some(new) = update(old) {
        // SAFETY: the caller guarantees that the element is valid for writes, too; the access
        // assumes no alignment.
        unsafe { address.cast::<R>().write_unaligned(new) };
    }
}

/// Updates one element that spans several buffers.
#[allow(clippy::indexing_slicing, reason = "the widest type is as large")]
fn update_scattered<R: Raw>(element: &Iov<'_>, update: impl FnOnce(R) -> Option<R>) {
    let mut bytes = [0; size_of::<Wide>()];
    let bytes = &mut bytes[..size_of::<R>()];
    let _guard = split_lock::lock();
    element.read_at(0, bytes);
    if let Some(new) = R::from_bytes(bytes).and_then(update) {
        new.to_bytes(bytes);
        element.write_at(0, bytes);
    }
}

macro_rules! cells {
    ($($type:ty as $atomic:ty),*) => { $(
        impl Cell for $type {
            #[inline]
            unsafe fn update_at(
                address: *mut u8,
                mut update: impl FnMut(Self) -> Option<Self>,
            ) -> Option<()> {
                let address = address.cast::<$type>();
                if !address.addr().is_multiple_of(align_of::<$atomic>()) {
                    return None;
                }
                // SAFETY: the caller guarantees that the element is valid, and its alignment was
                // just checked.
                let cell = unsafe { <$atomic>::from_ptr(address) };
                let mut old = cell.load(SeqCst);
                while let Some(new) = update(old) {
                    match cell.compare_exchange_weak(old, new, SeqCst, SeqCst) {
                        Ok(_) => break,
                        Err(now) => old = now,
                    }
                }
                Some(())
            }
        }
    )* };
}

cells!(
    u8 as AtomicU8,
    u16 as AtomicU16,
    u32 as AtomicU32,
    u64 as AtomicU64
);

impl Cell for u128 {
    #[cfg(target_arch = "x86_64")]
    unsafe fn update_at(
        address: *mut u8,
        mut update: impl FnMut(Self) -> Option<Self>,
    ) -> Option<()> {
        // Processors with AVX load 16 aligned bytes in one step. Without AVX only an exchange can
        // read them, which fails on read-only memory.
        let able = is_x86_feature_detected!("cmpxchg16b") && is_x86_feature_detected!("avx");
        if !able || !address.addr().is_multiple_of(16) {
            return None;
        }
        // SAFETY: the caller guarantees that the 16 bytes are valid for reads, and their alignment
        // was just checked.
        let mut old = unsafe { load_16(address) };
        while let Some(new) = update(old) {
            // SAFETY: the memory is as above, and valid for writes since `update` returns a value
            // to write; the processor was found to have the instruction.
            let now = unsafe { exchange_16(address, old, new) };
            if now == old {
                break;
            }
            old = now;
        }
        Some(())
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn update_at(_: *mut u8, _: impl FnMut(Self) -> Option<Self>) -> Option<()> {
        None
    }
}

impl Cell for Wide {
    unsafe fn update_at(_: *mut u8, _: impl FnMut(Self) -> Option<Self>) -> Option<()> {
        None
    }
}

/// Loads 16 bytes with one instruction.
///
/// # Safety
/// `address` is a multiple of 16 and valid for reads of 16 bytes.
#[cfg(target_arch = "x86_64")]
unsafe fn load_16(address: *const u8) -> u128 {
    let value: std::arch::x86_64::__m128i;
    // SAFETY: the caller guarantees that the address is aligned and valid for reads of 16 bytes.
    // The load is written in assembly so that the compiler cannot split it.
    unsafe {
        std::arch::asm!(
            "movdqa {value}, xmmword ptr [{address}]",
            value = lateout(xmm_reg) value,
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: both types have 16 bytes and accept every bit pattern.
    unsafe { std::mem::transmute(value) }
}

/// Stores `new` if the 16 bytes are `old`, in one step; returns the bytes found there.
///
/// # Safety
/// `address` is a multiple of 16 and valid for reads and writes of 16 bytes; the
/// processor has CMPXCHG16B.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange_16(address: *mut u8, old: u128, new: u128) -> u128 {
    let (low, high): (u64, u64);
    // SAFETY: the instruction accesses only the 16 bytes that the caller guarantees to be valid and
    // aligned. RBX, which the compiler reserves, has its previous value again at the end.
    unsafe {
        std::arch::asm!(
            "xchg rbx, rsi",
            "lock cmpxchg16b xmmword ptr [rdi]",
            "mov rbx, rsi",
            in("rdi") address,
            inout("rsi") new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") old as u64 => low,
            inout("rdx") (old >> 64) as u64 => high,
            options(nostack),
        );
    }
    low as u128 | (high as u128) << 64
}
