//! Wait sets: one wait object for several queues and counters (fi_poll(3)).

#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Deref};

use parking_lot::Mutex;

use crate::wait::{Deadline, Pause, Wait, WaitKind, Waitable, Wake, may_block};
use prov_base::errno::{Errno, Result};

/// A reference to a member of a set, which must not keep the member open.
pub type Member = Box<dyn Deref<Target = dyn Waitable> + Send + Sync>;

/// A wait set.
pub struct WaitSet {
    kind: WaitKind,
    /// Absent for [`WaitKind::Yield`].
    wait: Option<Wait>,
    members: Mutex<Vec<Member>>,
}

impl WaitSet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// `FI_EINVAL` for a kind that sets do not support, and those of creating descriptors.
    pub fn new(kind: WaitKind) -> Result<Self> {
        let kind = match kind {
            WaitKind::Unspec => WaitKind::Fd,
            WaitKind::Fd | WaitKind::PollFd | WaitKind::MutexCond | WaitKind::Yield => kind,
            WaitKind::None | WaitKind::Set => return Err(Errno::EINVAL),
        };
        Ok(Self {
            kind,
            wait: match kind {
                WaitKind::Yield => None,
                _ => Some(Wait::new(kind)?),
            },
            members: Mutex::default(),
        })
    }

    /// Returns the kind of wait object.
    pub fn kind(&self) -> WaitKind {
        self.kind
    }

    /// Returns the wait object whose bell the members ring.
    pub fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// Adds a queue or counter that was opened with this set.
    pub fn join(&self, member: Member) {
        self.members.lock().push(member);
    }

    /// Removes a member.
    pub fn leave(&self, member: &dyn Waitable) {
        self.members
            .lock()
            .retain(|known| !std::ptr::addr_eq::<dyn Waitable, dyn Waitable>(&***known, member));
    }

    /// One round of fi_wait(3), which returns once a member has something to read: the step after
    /// the thread woke (at first: with [`Wake::Ready`]). Returns the outcome or the next pause.
    ///
    /// # Errors `FI_ETIMEDOUT` when the deadline has passed, `FI_EINTR` when a signal handler ran.
    pub fn wait_round(&self, deadline: Deadline, woke: Wake) -> ControlFlow<Result, Pause<'_>> {
        match woke {
            Wake::TimedOut => {
                return ControlFlow::Break(self.take_news().then_some(()).ok_or(Errno::ETIMEDOUT));
            }
            Wake::Interrupted | Wake::Inherited => return ControlFlow::Break(Err(Errno::EINTR)),
            Wake::Ready if self.take_news() => return ControlFlow::Break(Ok(())),
            Wake::Ready => {}
        }
        ControlFlow::Continue(self.pause(deadline))
    }

    /// Runs a whole fi_wait(3), for callers in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of [`WaitSet::wait_round`].
    pub fn wait_for_news(&self, timeout: i32) -> Result {
        let deadline = Deadline::after_ms(timeout);
        let mut woke = Wake::Ready;
        loop {
            match self.wait_round(deadline, woke) {
                ControlFlow::Continue(pause) => woke = pause.take(),
                ControlFlow::Break(outcome) => return outcome,
            }
        }
    }

    /// Implements fi_trywait(3) for the set.
    ///
    /// # Errors
    /// `FI_EAGAIN` if the application must read first.
    pub fn try_wait(&self) -> Result {
        let wait = self.wait.as_ref().ok_or(Errno::EAGAIN)?;
        may_block(wait, self.members.lock().iter().map(|member| &***member))
    }

    /// Called when the application goes to sleep as [`WaitSet::try_wait`] has allowed.
    pub fn sleeps(&self) {
        let members = self.members.lock();
        members.iter().for_each(|member| member.sources().sleeps());
    }

    /// Returns what to do until an entry may have arrived.
    fn pause(&self, deadline: Deadline) -> Pause<'_> {
        let ticket = self.wait.as_ref().and_then(Wait::enter);
        let idle = {
            let members = self.members.lock();
            for member in members.iter() {
                member.sources().drive();
            }
            members
                .iter()
                .all(|member| member.arm() && member.sources().prepare_wait())
        };
        match ticket {
            _ if !idle && deadline.is_over() => Pause::Over(Wake::TimedOut),
            _ if !idle => Pause::Over(Wake::Ready),
            Some(ticket) => {
                self.sleeps();
                ticket.pause(deadline)
            }
            None if deadline.is_over() => Pause::Over(Wake::TimedOut),
            None => Pause::Yield,
        }
    }

    fn take_news(&self) -> bool {
        let members = self.members.lock();
        members.iter().fold(false, |news, member| {
            member.sources().drive();
            member.take_news() || news
        })
    }
}
