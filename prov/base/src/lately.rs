//! Remembers whether something was checked so recently that checking again is of no use.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time at which something was checked, on a clock that is cheaper to read than a system call.
///
/// The clock need not agree between processors: a time that seems to be in the future counts as not
/// recent.
#[derive(Default)]
pub struct Lately(u64);

impl Lately {
    /// Sets the time to now.
    #[inline(always)]
    pub fn is_now(&mut self) {
        self.0 = now();
    }

    /// Whether the time is recent.
    #[inline(always)]
    pub fn was(&self) -> bool {
        now().wrapping_sub(self.0) < lately()
    }
}

/// Bound of "recently", in ticks of the processor's clock or nanoseconds: 64 to 256 ns, about the
/// duration of one system call that checks something.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
fn lately() -> u64 {
    256
}

/// The same, from the frequency of the counter, which is some 10 MHz to 1 GHz.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn lately() -> u64 {
    let frequency: u64;
    // SAFETY: the instruction reads a register, which Linux lets programs read.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, pure));
    }
    frequency >> 22
}

/// The counter of the generic timer.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn now() -> u64 {
    let ticks: u64;
    // SAFETY: the instruction reads a register, which Linux lets programs read.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
    }
    ticks
}

/// The time stamp counter, which every x86 of 64 bits has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn now() -> u64 {
    // SAFETY: the instruction reads a counter into registers. Programs may execute it unless
    // prctl(PR_SET_TSC) forbids it, in which case the process ends.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use self::nanoseconds as now;

/// Returns nanoseconds since a second before the first call, on a clock that is read without a
/// system call.
#[inline]
pub fn nanoseconds() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = FIRST.get_or_init(Instant::now).elapsed();
    let since = since + Duration::from_secs(1);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recent_time_is_recent_for_a_moment() {
        let never = Lately::default();
        assert!(!never.was());
        let mut once = Lately::default();
        // This thread may be preempted between the two.
        while !once.was() {
            once.is_now();
        }
        while once.was() {}
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(!once.was());
        assert!(!Lately(now().wrapping_add(1 << 40)).was());
    }
}
