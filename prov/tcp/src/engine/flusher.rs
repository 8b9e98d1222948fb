//! The thread that sends what was held back, when the application does not
//! call any more.
//!
//! It starts with the first burst and sleeps as long as there are none. While
//! bursts follow each other it looks every [`HOLD`], so that an application
//! that sends in bursts does not pay for waking it each time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Engine;

/// How long a message is held back at most.
const HOLD: Duration = Duration::from_micros(50);
/// Looks without a burst after which the thread goes to sleep.
const QUIET_LOOKS: u32 = 40;

/// The engine's hold on the thread.
pub struct Flusher {
    engine: Weak<Engine>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// [`ASLEEP`], [`AWAKE`] or [`OVER`].
    state: AtomicU32,
    /// When the messages that are held back began to be, in nanoseconds since
    /// `epoch`; 0 if there are none.
    held_since: AtomicU64,
    epoch: Instant,
}

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;
const OVER: u32 = 2;

impl Flusher {
    /// Without a thread yet.
    pub fn new(engine: Weak<Engine>) -> Self {
        Flusher {
            engine,
            shared: Arc::new(Shared {
                state: AtomicU32::new(ASLEEP),
                held_since: AtomicU64::new(0),
                epoch: Instant::now(),
            }),
            thread: None,
        }
    }

    /// A message is held back, and none was before.
    #[inline]
    pub fn burst_begins(&mut self) {
        self.shared
            .held_since
            .store(self.shared.now(), Ordering::SeqCst);
        if self.shared.state.load(Ordering::SeqCst) == ASLEEP {
            self.wake();
        }
    }

    /// Nothing is held back any more.
    #[inline]
    pub fn burst_ends(&mut self) {
        self.shared.held_since.store(0, Ordering::Relaxed);
    }

    /// Ends the thread, for good. The caller waits for it without the engine's
    /// lock, which it may want first.
    pub fn end(&mut self) -> Option<JoinHandle<()>> {
        self.shared.state.store(OVER, Ordering::SeqCst);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        Some(thread)
    }

    #[cold]
    fn wake(&mut self) {
        self.shared.state.store(AWAKE, Ordering::SeqCst);
        match &self.thread {
            Some(thread) => thread.thread().unpark(),
            None => {
                let engine = self.engine.clone();
                let shared = self.shared.clone();
                let started = std::thread::Builder::new()
                    .name("fi_tcp flusher".into())
                    .stack_size(128 * 1024)
                    .spawn(move || run(&engine, &shared));
                match started {
                    Ok(thread) => self.thread = Some(thread),
                    // What is held back then leaves with the next call.
                    Err(error) => log::warn!("no thread to end bursts with: {error}"),
                }
            }
        }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64 + 1
    }
}

fn run(engine: &Weak<Engine>, shared: &Shared) {
    crate::signals::block_all();
    crate::signals::sleep_exactly();
    let hold = HOLD.as_nanos() as u64;
    let mut quiet = 0;
    loop {
        match shared.state.load(Ordering::SeqCst) {
            OVER => return,
            ASLEEP => {
                std::thread::park();
                continue;
            }
            _ => {}
        }
        let since = shared.held_since.load(Ordering::SeqCst);
        if since == 0 {
            quiet += 1;
            if quiet < QUIET_LOOKS {
                std::thread::sleep(HOLD);
                continue;
            }
            quiet = 0;
            let asleep =
                shared
                    .state
                    .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
            // A burst that began meanwhile saw a thread awake.
            if asleep.is_ok() && shared.held_since.load(Ordering::SeqCst) != 0 {
                let _ = shared.state.compare_exchange(
                    ASLEEP,
                    AWAKE,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
            }
            continue;
        }
        quiet = 0;
        let age = shared.now().saturating_sub(since);
        if age < hold {
            std::thread::sleep(Duration::from_nanos(hold - age));
        }
        if shared.held_since.load(Ordering::SeqCst) == since {
            match engine.upgrade() {
                Some(engine) => engine.core().flush_held(),
                None => return,
            }
        }
    }
}
