//! Threads of the library.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::uncancelled::Uncancelled;

/// A thread in which all signals are blocked, so that they are delivered to the application's
/// threads. Dropping the value does not end the thread.
pub struct OwnThread {
    handle: JoinHandle<()>,
    body: Arc<Mutex<Option<Body>>>,
}

/// The function of a thread; the thread takes it when it begins to run.
type Body = Box<dyn FnOnce() + Send>;

impl OwnThread {
    /// Starts a thread of this name, of at most 15 bytes, with so many bytes of stack.
    ///
    /// # Errors
    /// Those of pthread_create(3).
    pub fn start(
        name: &str,
        stack: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let body = Arc::new(Mutex::new(Some(Box::new(body) as Body)));
        let handle = {
            let body = body.clone();
            let thread = std::thread::Builder::new().name(name.into());
            without_signals(|| thread.stack_size(stack).spawn(move || begin(&body)))?
        };
        Ok(OwnThread { handle, body })
    }

    /// Whether this is the calling thread. Unlike `std::thread::current()` this works in
    /// destructors of thread-specific data.
    pub fn is_current(&self) -> bool {
        // SAFETY: both functions accept all threads of the process; the handle's thread was not
        // joined, so that its identifier is not reused.
        unsafe { libc::pthread_equal(self.handle.as_pthread_t(), libc::pthread_self()) != 0 }
    }

    /// Waits for the end of a thread that was told to end. A thread that has not begun to run never
    /// calls its function, and is not waited for: it may be blocked on the lock of the dynamic
    /// linker, which the caller holds in a destructor that dlclose(3) runs.
    pub fn join(self) {
        if self.body.lock().take().is_some() {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        // It returns normally, or the process has been aborted.
        let _ = self.handle.join();
    }

    /// Forgets the thread without waiting, in a forked child: the thread exists in the parent only.
    pub fn forget(self) {
        std::mem::forget(self.handle);
    }
}

/// The function that every thread of the library runs.
fn begin(body: &Mutex<Option<Body>>) {
    // The first wait on a lock registers a destructor with the dynamic linker, under the linker's
    // lock, which the thread that waits for this one later may hold; so it is done here.
    let (lock, woken) = (Mutex::new(()), Condvar::new());
    let _ = woken.wait_for(&mut lock.lock(), Duration::ZERO);
    let body = body.lock().take();
    if let Some(body) = body {
        body();
    }
}

/// Starts a thread in which all signals are blocked.
pub fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: zero is a valid value of a signal set, `sigfillset` fills the set that
    // `pthread_sigmask` reads, and `pthread_sigmask` fills the other one.
    let before = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = start();
    // SAFETY: `before` is the set that the first call has filled; the last argument may be null.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    started
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_has_begun_is_waited_for() {
        let (told, begun) = mpsc::channel();
        let (tell, hear) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(false));
        let thread = {
            let ended = ended.clone();
            OwnThread::start("test", 64 * 1024, move || {
                told.send(()).unwrap();
                // The sender is dropped when the thread is to end.
                let _ = hear.recv();
                *ended.lock() = true;
            })
            .unwrap()
        };
        begun.recv().unwrap();
        drop(tell);
        thread.join();
        assert!(*ended.lock());
    }

    #[test]
    fn a_thread_that_has_not_begun_does_nothing_and_is_not_waited_for() {
        let has_run = Arc::new(Mutex::new(false));
        let run: Body = {
            let has_run = has_run.clone();
            Box::new(move || *has_run.lock() = true)
        };
        let body = Arc::new(Mutex::new(Some(run)));
        let (tell, hear) = mpsc::channel::<()>();
        let (told, ended) = mpsc::channel();
        let handle = {
            let body = body.clone();
            std::thread::spawn(move || {
                let _ = hear.recv();
                begin(&body);
                told.send(()).unwrap();
            })
        };
        OwnThread { handle, body }.join();
        drop(tell);
        ended.recv().unwrap();
        assert!(!*has_run.lock());
    }
}
