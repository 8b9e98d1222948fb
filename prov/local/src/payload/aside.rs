//! Copies of the application's memory for a peer that takes nothing at present. With them the operations
//! are complete, as they are once the kernel has the bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use prov_base::buffer::Iov;
use prov_base::memory_limit::half_of_memory;

/// Largest number of bytes that are set aside for one connection: the default limit of the kernel's
/// send buffer (tcp(7), `tcp_wmem`), which bounds what the C library completes that way.
pub const SHARE: u64 = 4 << 20;

/// Number of bytes that are set aside in this process.
static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// A copy of the application's memory.
pub struct Aside(Vec<u8>);

impl Aside {
    /// Copies `memory`. Returns `None` if the copies of the process would exceed an eighth of its
    /// memory, or if there is none, and for memory of a device, which would be waited for.
    pub fn copy_of(memory: &Iov<'_>) -> Option<Self> {
        if memory.has_device() {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(memory.len()).ok()?;
        let before = TOTAL.fetch_add(memory.len(), Ordering::Relaxed);
        if before.saturating_add(memory.len()) > half_of_memory() / 4 {
            TOTAL.fetch_sub(memory.len(), Ordering::Relaxed);
            return None;
        }
        let mut copy = Aside(bytes);
        memory.append_to(&mut copy.0);
        Some(copy)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the address of the bytes, for a process that copies them.
    pub fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        TOTAL.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}
