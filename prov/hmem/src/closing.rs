//! Calls that end something of a device. A driver may wait for the device in them, and the device for a
//! message: they are left to a thread.

use prov_base::own_thread::OwnThread;

use super::LOG;

/// Bytes of the thread's stack, for the driver's call alone.
const STACK: usize = 256 << 10;

/// Makes a call in a thread of its own; without threads, what it ends stays open.
pub(crate) fn aside(call: impl FnOnce() + Send + 'static) {
    if let Err(error) = OwnThread::start("fi_hmem close", STACK, call) {
        log::warn!(target: LOG, "an allocation of a peer stays open: {error}");
    }
}
