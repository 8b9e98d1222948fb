//! A number of the current thread that costs one instruction.

/// Returns a number that no other living thread has: even, and not 0. It is the address of the
/// thread's control block, where the ABI of the system keeps one in a register.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri))))]
#[inline(always)]
pub(super) fn current() -> usize {
    let number: usize;
    // SAFETY: the ABI of x86-64 has the address of the control block in its first word, to which
    // the segment register points; it does not change while the thread lives.
    unsafe {
        std::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) number,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    number
}

/// Returns a number that no other living thread has: even, and not 0. It is the address of the
/// thread's control block.
#[cfg(all(target_arch = "aarch64", target_os = "linux", not(any(loom, miri))))]
#[inline(always)]
pub(super) fn current() -> usize {
    let number: usize;
    // SAFETY: the register can be read at all times, and does not change while the thread lives.
    unsafe {
        std::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) number,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    number
}

/// Returns a number that no other living thread has: even, and not 0. It is the address of a
/// variable of the thread.
#[cfg(not(any(
    loom,
    all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_os = "linux",
        not(miri)
    )
)))]
pub(super) fn current() -> usize {
    thread_local! {
        static ANY: u64 = const { 0 };
    }
    ANY.with(|any| std::ptr::from_ref(any).addr())
}

/// The threads of a model have one control block: the address of a variable of loom's thread.
#[cfg(loom)]
pub(super) fn current() -> usize {
    loom::thread_local! {
        static ANY: u64 = 0;
    }
    ANY.with(|any| std::ptr::from_ref(any).addr())
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_live_at_the_same_time_have_different_numbers() {
        let own = current();
        assert!(own != 0 && own.is_multiple_of(2));
        let other = std::thread::spawn(current).join().unwrap();
        assert_ne!(own, other);
        assert_eq!(own, current());
    }
}
