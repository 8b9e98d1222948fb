//! The thread that sends what was held back, when the application does not
//! call any more.
//!
//! It starts with the first burst and sleeps as long as there are none. While
//! bursts follow each other it looks every [`HOLD`], so that an application
//! that sends in bursts does not pay for waking it each time.
//!
//! Each look takes a timer and the processor from the application, above all on
//! a virtual machine. So an application that ends its bursts itself is looked
//! after less often, [`RELAXED`] at last: the price is that when it first stops
//! calling in the middle of a burst, that burst waits for so long. After that
//! it is watched closely again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Engine;

/// How long a message is held back at most.
const HOLD: Duration = Duration::from_micros(50);
/// How long the thread sleeps between two looks at most.
const RELAXED: Duration = Duration::from_micros(400);
/// Looks at bursts that the application had ended after which the thread
/// sleeps twice as long.
const TRUST_AFTER: u32 = 16;
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
    /// Counts bursts.
    bursts: AtomicU64,
    epoch: Instant,
}

/// How often the thread looks, by what it saw.
struct Pace {
    /// [`Shared::bursts`] at the last look.
    bursts: u64,
    /// Looks at bursts that the application had ended.
    trust: u32,
    /// Looks since the last burst.
    quiet: u32,
}

impl Pace {
    /// Nothing is held back; how long to sleep until the next look, `None`: until
    /// there is a burst.
    fn nothing_held(&mut self, bursts: u64) -> Option<Duration> {
        if bursts == self.bursts {
            self.quiet += 1;
        } else {
            self.bursts = bursts;
            self.quiet = 0;
            self.trust = self.trust.saturating_add(1);
        }
        if self.quiet == QUIET_LOOKS {
            self.quiet = 0;
            self.trust = 0;
            return None;
        }
        let doublings = (self.trust / TRUST_AFTER).min(8);
        Some((HOLD * (1 << doublings)).min(RELAXED))
    }

    /// The application did not end a burst.
    fn burst_was_left(&mut self, bursts: u64) {
        *self = Pace {
            bursts,
            trust: 0,
            quiet: 0,
        };
    }
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
                bursts: AtomicU64::new(0),
                epoch: Instant::now(),
            }),
            thread: None,
        }
    }

    /// A message is held back, and none was before.
    #[inline]
    pub fn burst_begins(&mut self) {
        // Written under the engine's lock only.
        let bursts = self.shared.bursts.load(Ordering::Relaxed);
        self.shared.bursts.store(bursts + 1, Ordering::Relaxed);
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
    let mut pace = Pace {
        bursts: 0,
        trust: 0,
        quiet: 0,
    };
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
            let bursts = shared.bursts.load(Ordering::Relaxed);
            if let Some(pause) = pace.nothing_held(bursts) {
                std::thread::sleep(pause);
                continue;
            }
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
        let age = shared.now().saturating_sub(since);
        if age < hold {
            std::thread::sleep(Duration::from_nanos(hold - age));
        }
        if shared.held_since.load(Ordering::SeqCst) == since {
            pace.burst_was_left(shared.bursts.load(Ordering::Relaxed));
            match engine.upgrade() {
                Some(engine) => engine.core().flush_held(),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_bursts_is_watched_less_until_one_is_left() {
        let mut pace = Pace {
            bursts: 0,
            trust: 0,
            quiet: 0,
        };
        assert_eq!(pace.nothing_held(1), Some(HOLD));
        let pauses: Vec<_> = (2..200).map(|n| pace.nothing_held(n).unwrap()).collect();
        assert!(pauses.is_sorted());
        assert_eq!((pauses[0], pauses.last()), (HOLD, Some(&RELAXED)));
        pace.burst_was_left(200);
        assert_eq!(pace.nothing_held(200), Some(HOLD));
        let quiet = (0..).take_while(|_| pace.nothing_held(200).is_some());
        assert_eq!(quiet.count() as u32, QUIET_LOOKS - 2);
        assert_eq!(pace.nothing_held(201), Some(HOLD));
    }
}
