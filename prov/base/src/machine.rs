//! Facts of the machine, from the C library: it has them from the loader, also where a program runs
//! on an emulated processor (valgrind).

/// Returns the size of a page of memory, in bytes.
pub fn page_size() -> usize {
    // SAFETY: sysconf(3) takes an integer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Returns the number of the processor on which the caller runs at this moment; 0 if the system does
/// not tell.
pub fn processor() -> u32 {
    // SAFETY: sched_getcpu(3) takes nothing.
    let number = unsafe { libc::sched_getcpu() };
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_of_a_power_of_two() {
        assert!(page_size() >= 4096 && page_size().is_power_of_two());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri runs on no processor")]
    fn the_processor_is_one_of_the_machine() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        assert!(allowed.is_set(processor() as usize));
    }
}
