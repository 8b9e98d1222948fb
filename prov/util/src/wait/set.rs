//! Wait sets: one wait object for several queues and counters (fi_poll(3)).

#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Deref};

use parking_lot::Mutex;

use crate::errno::{Errno, Result};
use crate::wait::{Deadline, Pause, Wait, WaitKind, Waitable, Wake, may_block};

/// What keeps a member of a set reachable. It must not keep it open.
pub type Member = Box<dyn Deref<Target = dyn Waitable> + Send + Sync>;

/// A wait set.
pub struct WaitSet {
    kind: WaitKind,
    /// Absent for [`WaitKind::Yield`].
    wait: Option<Wait>,
    members: Mutex<Vec<Member>>,
}

impl WaitSet {
    /// An empty set.
    ///
    /// # Errors
    /// `FI_EINVAL` for a kind that sets do not have, and what opening
    /// descriptors returns.
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

    /// What the set waits with.
    pub fn kind(&self) -> WaitKind {
        self.kind
    }

    /// The bell that members ring.
    pub fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// Adds a queue or counter that was opened with this set.
    pub fn join(&self, member: Member) {
        self.members.lock().push(member);
    }

    /// Removes a member, given as what it was added as.
    pub fn leave(&self, member: &dyn Waitable) {
        self.members
            .lock()
            .retain(|known| !std::ptr::addr_eq::<dyn Waitable, dyn Waitable>(&***known, member));
    }

    /// fi_wait(3): returns once a member has something to read.
    ///
    /// # Errors
    /// `FI_ETIMEDOUT` after `timeout` milliseconds (negative: never),
    /// `FI_EINTR` when a signal handler ran.
    ///
    /// This is what it does after its thread woke: the outcome, or the next pause. The
    /// first time `woke` is [`Wake::Ready`].
    pub fn wait_round(&self, deadline: Deadline, woke: Wake) -> ControlFlow<Result, Pause<'_>> {
        match woke {
            Wake::TimedOut => {
                return ControlFlow::Break(self.take_news().then_some(()).ok_or(Errno::ETIMEDOUT));
            }
            Wake::Interrupted => return ControlFlow::Break(Err(Errno::EINTR)),
            Wake::Ready if self.take_news() => return ControlFlow::Break(Ok(())),
            Wake::Ready => {}
        }
        ControlFlow::Continue(self.pause(deadline))
    }

    /// All rounds of it, for a caller in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of its rounds.
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

    /// fi_trywait(3) on the set.
    ///
    /// # Errors
    /// `FI_EAGAIN` when the application must read something first.
    pub fn try_wait(&self) -> Result {
        let wait = self.wait.as_ref().ok_or(Errno::EAGAIN)?;
        may_block(wait, self.members.lock().iter().map(|member| &***member))
    }

    /// What to do until something may have come.
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
            _ if !idle => Pause::Over(Wake::Ready),
            Some(ticket) => ticket.pause(deadline),
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
