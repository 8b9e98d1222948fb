//! Persistent memory: writes stored bytes back from the processor's caches, so that they survive a
//! loss of power (`FI_RMA_PMEM`, `FI_COMMIT_COMPLETE`).

use super::Iov;

/// Smallest number of bytes that one instruction writes back: a cache line; some other
/// architectures have shorter ones.
const LINE: usize = if cfg!(target_arch = "x86_64") { 64 } else { 16 };

impl Iov<'_> {
    /// Writes back every cache line of the memory. When this returns, the bytes are in the
    /// persistence domain, if the memory is persistent and mapped as such (`MAP_SYNC`). Does
    /// nothing if the processor has no instruction for it ([`can_write_back`]).
    pub fn write_back(&self) {
        let Some(instruction) = instruction() else {
            return;
        };
        for piece in self.host_pieces() {
            for line in lines::<LINE>(piece.iov_base.addr(), piece.iov_len) {
                // SAFETY: the line has a byte of the piece, which is valid memory, and
                // lies within one page with it.
                unsafe { instruction.write_back(piece.iov_base.with_addr(line).cast()) };
            }
        }
        fence();
    }
}

/// Whether this processor can be told to write its caches back.
pub fn can_write_back() -> bool {
    instruction().is_some()
}

/// Returns the addresses of the lines that hold `len` bytes at `address`.
fn lines<const LEN: usize>(address: usize, len: usize) -> impl Iterator<Item = usize> {
    let first = address & !(LEN - 1);
    let end = address.saturating_add(len);
    (first..end).step_by(LEN).filter(move |_| len != 0)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64::{fence, instruction};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
    use std::sync::OnceLock;

    /// The instruction that writes a line back, the cheapest first.
    #[derive(Clone, Copy)]
    pub enum Instruction {
        /// The line stays in the cache.
        Clwb,
        /// The line leaves the cache.
        ClflushOpt,
        /// The line leaves the cache; the instructions are executed one after the other.
        Clflush,
    }

    pub fn instruction() -> Option<Instruction> {
        static FOUND: OnceLock<Instruction> = OnceLock::new();
        Some(*FOUND.get_or_init(|| {
            /// A bit of leaf 7, in EBX.
            const CLFLUSHOPT: u32 = 1 << 23;
            const CLWB: u32 = 1 << 24;
            let features = match __cpuid(0).eax {
                0..7 => 0,
                _ => __cpuid_count(7, 0).ebx,
            };
            match (features & CLWB != 0, features & CLFLUSHOPT != 0) {
                (true, _) => Instruction::Clwb,
                (_, true) => Instruction::ClflushOpt,
                // Every processor of this architecture has it.
                _ => Instruction::Clflush,
            }
        }))
    }

    impl Instruction {
        /// # Safety
        /// The address is of valid memory, and the processor has the instruction.
        pub unsafe fn write_back(self, line: *const u8) {
            // SAFETY: the caller guarantees that the memory is valid and that the processor has the
            // instruction, which changes no byte.
            unsafe {
                match self {
                    Instruction::Clwb => {
                        asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Instruction::ClflushOpt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Instruction::Clflush => _mm_clflush(line),
                }
            }
        }
    }

    /// Waits until all lines are written back.
    pub fn fence() {
        // SAFETY: every processor of this architecture has the instruction, which accesses no
        // memory.
        unsafe { _mm_sfence() };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64::{fence, instruction};

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64 {
    use std::arch::asm;

    /// Writes a line back to the point of persistence.
    #[derive(Clone, Copy)]
    pub struct Instruction;

    pub fn instruction() -> Option<Instruction> {
        /// `HWCAP_DCPOP`: there is such an instruction.
        const DCPOP: libc::c_ulong = 1 << 16;
        // SAFETY: getauxval(3) accepts all numbers, and accesses no memory of the caller.
        let features = unsafe { libc::getauxval(libc::AT_HWCAP) };
        (features & DCPOP != 0).then_some(Instruction)
    }

    impl Instruction {
        /// # Safety
        /// The address is of valid memory, and the processor has the instruction.
        pub unsafe fn write_back(self, line: *const u8) {
            // SAFETY: the caller guarantees that the memory is valid and that the processor has the
            // instruction, which changes no byte. It is `dc cvap`, written as an encoding that
            // assemblers accept without extensions.
            unsafe {
                asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags));
            }
        }
    }

    /// Waits until all lines are written back.
    pub fn fence() {
        // SAFETY: the instruction is a memory barrier, which every processor of this architecture
        // has.
        unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use elsewhere::{fence, instruction};

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod elsewhere {
    /// There is no such instruction.
    #[derive(Clone, Copy)]
    pub enum Instruction {}

    pub fn instruction() -> Option<Instruction> {
        None
    }

    impl Instruction {
        /// # Safety
        /// Cannot be called.
        pub unsafe fn write_back(self, _: *const u8) {
            match self {}
        }
    }

    pub fn fence() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::AppIov;

    #[test]
    fn every_line_with_a_byte_is_written_back_once() {
        for (address, len, expected) in [
            (0, 0, vec![]),
            (70, 0, vec![]),
            (0, 1, vec![0]),
            (63, 1, vec![0]),
            (63, 2, vec![0, 64]),
            (64, 64, vec![64]),
            (100, 100, vec![64, 128, 192]),
            (usize::MAX - 63, 63, vec![usize::MAX - 63]),
        ] {
            let found: Vec<usize> = lines::<64>(address, len).collect();
            assert_eq!(found, expected, "{len} bytes at {address}");
        }
    }

    #[test]
    fn writing_back_changes_nothing() {
        let mut bytes: Vec<u8> = (0..1000).map(|byte| byte as u8).collect();
        let before = bytes.clone();
        // SAFETY: `bytes` outlives the description.
        let memory = unsafe { AppIov::from_raw(bytes.as_mut_ptr().wrapping_add(1), 990) };
        memory.write_back();
        AppIov::EMPTY.write_back();
        assert_eq!(bytes, before);
    }
}
