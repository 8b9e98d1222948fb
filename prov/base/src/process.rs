//! The process that an object belongs to. A child of fork(2) inherits objects whose sockets, epoll
//! instances, timers and shared memory it shares with its parent.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process id, as noted by the handler of fork(2) and whenever an object is opened. In a child
/// it is the parent's until that handler has run, which an earlier handler of the application may
/// notice.
static NOTED: AtomicU32 = AtomicU32::new(0);

/// The process in which something was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// No process: it is never the calling one.
    pub const NONE: Process = Process(0);

    /// The calling process.
    pub fn current() -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler may be called in any child, since it only stores a number. If
            // there is no memory to register it, children are distinguished by their process id
            // alone.
            unsafe { libc::pthread_atfork(None, None, Some(note)) };
        });
        Process(note_current())
    }

    /// Whether this is the calling process, and not one that it was forked from. Takes one system
    /// call.
    pub fn is_current(self) -> bool {
        self.0 == std::process::id()
    }

    /// [`Process::is_current`] for calls that move data: a load and a comparison. In a child it is
    /// true until the handlers of fork(2) have run.
    #[inline(always)]
    pub fn is_noted(self) -> bool {
        self.0 == NOTED.load(Ordering::Relaxed)
    }
}

fn note_current() -> u32 {
    let id = std::process::id();
    NOTED.store(id, Ordering::Relaxed);
    id
}

unsafe extern "C" fn note() {
    note_current();
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn objects_of_another_process_are_not_of_this_one() {
        let own = Process::current();
        assert!(own.is_current() && own.is_noted());
        let other = Process(std::process::id() + 1);
        assert!(!other.is_current() && !other.is_noted());
        assert!(!Process::NONE.is_current() && !Process::NONE.is_noted());
    }
}
