//! How processes of a host know that the threads of a lane sleep, and which of them wakes them: one
//! word of the lane, in memory that all of its peers map.
//!
//! The lane arms its doorbell before a thread sleeps. A peer that has sent something and finds the
//! doorbell armed disarms it, and wakes the lane by a system call (whose kind is up to the provider).
//! Other peers that send meanwhile find it disarmed, and make no system call: the lane looks at all
//! of its channels after it was woken. So a lane that sleeps is woken once, however many peers send.
//!
//! A peer that ends between the two steps wakes the lane by its end. The word is no more than advice:
//! a process that writes anything else into it, which only one of the same user can, delays messages
//! at worst.

use prov_base::shared_words::{AtomicU64, Ordering};

/// The value of a doorbell that is armed; any other value means that nobody has to be woken.
const ARMED: u64 = 1;
/// The lowest value of a doorbell that was rung: this, and the number of the processor on which the
/// peer ran.
const RUNG: u64 = 2;

/// Arms a doorbell. The caller then executes a heavy barrier ([`barrier`](crate::barrier)) and looks
/// for messages: it sees those that were sent before, and the first one that is sent later rings.
pub fn arm(word: &AtomicU64) {
    word.store(ARMED, Ordering::Relaxed);
}

/// Whether nobody has rung since [`arm`].
pub fn is_armed(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) == ARMED
}

/// Called by a peer that has written something, after a light barrier
/// ([`barrier`](crate::barrier)). Returns whether it has to wake the lane.
#[inline(always)]
#[must_use]
pub fn must_ring(word: &AtomicU64) -> bool {
    is_armed(word) && disarm(word)
}

/// Returns whether this caller has disarmed it.
#[cold]
#[inline(never)]
fn disarm(word: &AtomicU64) -> bool {
    let rung = RUNG + processor();
    word.compare_exchange(ARMED, rung, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

/// Returns whether it was rung by a peer that ran on this thread's processor, once.
pub fn was_rung_here(word: &AtomicU64) -> bool {
    let rung = word.load(Ordering::Relaxed);
    if rung < RUNG {
        return false;
    }
    // Peers write only to a doorbell that is armed.
    word.store(0, Ordering::Relaxed);
    rung == RUNG + processor()
}

/// Returns the number of the processor on which the caller runs.
#[cfg(not(loom))]
fn processor() -> u64 {
    prov_base::machine::processor().into()
}

#[cfg(loom)]
fn processor() -> u64 {
    0
}

#[cfg(not(loom))]
pub use self::shared::{Doorbell, DoorbellOfPeer};

#[cfg(not(loom))]
mod shared {
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
    use std::ptr::NonNull;
    use std::sync::Arc;

    use prov_base::errno::{Errno, Result};
    use prov_base::shared_words::{AtomicU64, Ordering};

    use crate::segment::Segment;

    /// Value of the second word of the memory: its identification and version.
    const MAGIC: u64 = u64::from_le_bytes(*b"fi_bell\x01");
    /// Size of the memory in bytes.
    const SIZE: usize = 4096;

    /// A lane's doorbell.
    pub struct Doorbell {
        shared: DoorbellOfPeer,
        /// For peers to attach to.
        fd: OwnedFd,
    }

    /// A doorbell, as peers use it.
    #[derive(Clone)]
    pub struct DoorbellOfPeer {
        word: NonNull<AtomicU64>,
        /// Keeps the word mapped; `None` for a word that is always there.
        _memory: Option<Arc<Segment>>,
    }

    // SAFETY: the word is in memory that is bound to no thread and that the value keeps mapped, and it
    // is accessed atomically.
    unsafe impl Send for DoorbellOfPeer {}
    // SAFETY: as above.
    unsafe impl Sync for DoorbellOfPeer {}

    impl Doorbell {
        /// Creates one that is not armed.
        ///
        /// # Errors
        /// Those of [`Segment::create`].
        pub fn create() -> Result<Doorbell> {
            let whole = 0..SIZE;
            let (memory, fd) = Segment::create(SIZE, std::slice::from_ref(&whole))?;
            magic(&memory).store(MAGIC, Ordering::Relaxed);
            let shared = DoorbellOfPeer::of(memory);
            Ok(Doorbell { shared, fd })
        }

        /// Returns the descriptor for peers.
        pub fn descriptor(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }

        /// Returns it as peers use it.
        pub fn of_peer(&self) -> DoorbellOfPeer {
            self.shared.clone()
        }

        /// See [`arm`](super::arm).
        pub fn arm(&self) {
            super::arm(self.shared.word());
        }

        /// See [`was_rung_here`](super::was_rung_here).
        pub fn was_rung_here(&self) -> bool {
            super::was_rung_here(self.shared.word())
        }

        /// See [`is_armed`](super::is_armed).
        pub fn is_armed(&self) -> bool {
            super::is_armed(self.shared.word())
        }
    }

    impl DoorbellOfPeer {
        /// Attaches to the doorbell of another process.
        ///
        /// # Errors
        /// `-FI_EPROTO` if the memory is none of this version, others of [`Segment::attach`].
        pub fn attach(fd: BorrowedFd<'_>) -> Result<DoorbellOfPeer> {
            let memory = Segment::attach(fd, SIZE)?;
            match magic(&memory).load(Ordering::Relaxed) {
                MAGIC => Ok(DoorbellOfPeer::of(memory)),
                _ => Err(Errno::EPROTO),
            }
        }

        /// The doorbell of a peer that is not known yet, or need not be woken.
        pub fn silent() -> DoorbellOfPeer {
            static NEVER_ARMED: AtomicU64 = AtomicU64::new(0);
            DoorbellOfPeer {
                word: NonNull::from(&NEVER_ARMED),
                _memory: None,
            }
        }

        fn of(memory: Segment) -> DoorbellOfPeer {
            DoorbellOfPeer {
                word: memory.base().cast(),
                _memory: Some(Arc::new(memory)),
            }
        }

        /// See [`is_armed`](super::is_armed).
        #[inline(always)]
        pub fn is_armed(&self) -> bool {
            super::is_armed(self.word())
        }

        /// See [`must_ring`](super::must_ring).
        #[inline(always)]
        #[must_use]
        pub fn must_ring(&self) -> bool {
            super::must_ring(self.word())
        }

        #[inline(always)]
        fn word(&self) -> &AtomicU64 {
            // SAFETY: the word is the first one of a mapping, which is aligned as pages are, or a
            // static one; it lives as long as `self`, and all processes access it atomically.
            unsafe { self.word.as_ref() }
        }
    }

    fn magic(memory: &Segment) -> &AtomicU64 {
        // SAFETY: the memory has `SIZE` bytes, so that its second word is inside it and aligned as
        // pages are; the mapping lives as long as the returned reference, and all processes access
        // the word atomically.
        unsafe { AtomicU64::from_ptr(memory.base().add(8).cast().as_ptr()) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn one_of_many_peers_wakes_a_lane_that_sleeps() {
            let bell = Doorbell::create().unwrap();
            let peers = [(); 3].map(|()| DoorbellOfPeer::attach(bell.descriptor()).unwrap());
            let ring = || peers.iter().filter(|peer| peer.must_ring()).count();
            assert_eq!(ring(), 0);
            for _ in 0..2 {
                bell.arm();
                assert!(bell.is_armed());
                assert_eq!(ring(), 1);
                assert!(!bell.is_armed());
                assert_eq!(ring(), 0);
            }
            assert!(!DoorbellOfPeer::silent().must_ring());
        }

        #[test]
        fn other_memory_is_no_doorbell() {
            let (_memory, fd) = Segment::create(SIZE, &[]).unwrap();
            let attached = DoorbellOfPeer::attach(fd.as_fd());
            assert_eq!(attached.err(), Some(Errno::EPROTO));
            let (_memory, fd) = Segment::create(2 * SIZE, &[]).unwrap();
            let attached = DoorbellOfPeer::attach(fd.as_fd());
            assert_eq!(attached.err(), Some(Errno::EPROTO));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::fence;
    use loom::thread;

    use super::*;

    /// A lane's doorbell, and the messages of two peers.
    struct Shared {
        bell: AtomicU64,
        messages: [AtomicU64; 2],
    }

    impl Shared {
        /// Returns whether the peer has to make a system call.
        fn send(&self, from: usize) -> bool {
            self.messages[from].store(1, Ordering::Release);
            // The light barrier: the effect that the kernel gives it.
            fence(Ordering::SeqCst);
            must_ring(&self.bell)
        }

        /// Returns whether both messages are found by a thread that is about to sleep.
        fn prepare_sleep(&self) -> bool {
            arm(&self.bell);
            // The heavy barrier.
            fence(Ordering::SeqCst);
            let messages = self.messages.iter();
            messages.fold(true, |all, message| {
                all & (message.load(Ordering::Acquire) != 0)
            })
        }
    }

    #[test]
    fn a_lane_that_sleeps_has_found_every_message_or_is_woken() {
        loom::model(|| {
            // It has slept before, and sleeps again whether it was woken or not.
            let shared = Arc::new(Shared {
                bell: AtomicU64::new(ARMED),
                messages: [AtomicU64::new(0), AtomicU64::new(0)],
            });
            let peers = [0, 1].map(|from| {
                let shared = shared.clone();
                thread::spawn(move || shared.send(from))
            });
            let has_all = shared.prepare_sleep();
            let calls = peers.map(|peer| usize::from(peer.join().unwrap()));
            // Whoever has disarmed it since wakes the lane.
            assert!(has_all || !is_armed(&shared.bell));
            assert!(is_armed(&shared.bell) || calls.iter().sum::<usize>() > 0);
        });
    }
}
