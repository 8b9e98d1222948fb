//! `FI_PROGRESS_AUTO`: a thread that drives an engine while the application
//! does not.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use prov_util::errno::Result;

use crate::engine::Engine;

/// How often the thread looks whether the application drives the engine.
const LOOK: Duration = Duration::from_millis(10);

/// The thread. It sleeps while nothing comes, and keeps out of the way while
/// the application makes progress calls.
pub struct AutoProgress {
    stop: Arc<AtomicBool>,
    /// Wakes the thread for its end.
    bell: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl AutoProgress {
    /// Starts the thread.
    pub fn start(engine: &Arc<Engine>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let bell = Arc::new(
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
                .map_err(crate::engine::socket::system)?,
        );
        let thread = {
            let (stop, bell, engine) = (stop.clone(), bell.clone(), Arc::downgrade(engine));
            std::thread::Builder::new()
                .name("fi_tcp progress".into())
                .stack_size(256 * 1024)
                .spawn(move || run(&engine, &stop, &bell))?
        };
        Ok(AutoProgress {
            stop,
            bell,
            thread: Some(thread),
        })
    }
}

impl Drop for AutoProgress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread looks again after a while even if this does not wake it.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(engine: &Weak<Engine>, stop: &AtomicBool, bell: &OwnedFd) {
    crate::signals::block_all();
    let Some(poller) = engine
        .upgrade()
        .and_then(|engine| engine.share_poller().ok())
    else {
        return;
    };
    let mut calls = 0;
    while !stop.load(Ordering::Acquire) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let now = engine.calls();
        if now != calls {
            // The application does it itself. Look again in a while.
            calls = now;
            drop(engine);
            sleep(None, bell, Some(LOOK));
            continue;
        }
        let idle = engine.drive();
        drop(engine);
        if idle {
            sleep(Some(&poller), bell, None);
        }
    }
}

fn sleep(poller: Option<&OwnedFd>, bell: &OwnedFd, timeout: Option<Duration>) {
    use rustix::event::{PollFd, PollFlags};
    let timeout = timeout.map(|timeout| rustix::time::Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut fds = vec![PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
    fds.extend(poller.map(|poller| PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN)));
    // Waking early does no harm.
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}
