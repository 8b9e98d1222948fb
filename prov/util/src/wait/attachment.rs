//! What a queue or a counter does to wait, and the steps of going to sleep
//! that all of them share.

use std::sync::Arc;

use super::set::WaitSet;
use super::{Deadline, Pause, Sources, Wait, WaitKind, Wake};
use crate::errno::{Errno, Result};

/// The wait object that something was opened with.
pub enum Attachment {
    /// `FI_WAIT_NONE`.
    None,
    /// `FI_WAIT_YIELD`.
    Yield,
    /// A wait object of its own.
    Own(WaitKind, Box<Wait>),
    /// `FI_WAIT_SET`.
    Set(Arc<WaitSet>),
}

/// A queue or a counter that can be waited for.
pub trait Waitable: Send + Sync {
    /// What it waits with.
    fn attachment(&self) -> &Attachment;

    /// What feeds it.
    fn sources(&self) -> &Sources;

    /// Whether an application would find something new to read. A counter
    /// tells of a change once.
    fn take_news(&self) -> bool;

    /// Whether there is nothing to read. From then on the next thing that
    /// comes rings the bell.
    fn arm(&self) -> bool;

    /// fi_trywait(3): whether the application may block on the wait object, or on
    /// whatever it has of its own where there is none.
    ///
    /// # Errors
    /// `FI_EAGAIN` when it must read first.
    fn try_wait(&self) -> Result {
        match self.attachment() {
            Attachment::None => {
                self.sources().drive();
                match self.take_news() {
                    true => Err(Errno::EAGAIN),
                    false => Ok(()),
                }
            }
            Attachment::Yield => Err(Errno::EAGAIN),
            Attachment::Own(_, wait) => may_block(wait, std::iter::once(self)),
            Attachment::Set(set) => set.try_wait(),
        }
    }

    /// What to do until something may have come: the end of one round of a blocking read.
    fn pause(&self, deadline: Deadline) -> Pause<'_> {
        // Nothing comes to what a forked child has inherited.
        if !self.sources().are_own() {
            return Pause::Over(Wake::Interrupted);
        }
        let Attachment::Own(_, wait) = self.attachment() else {
            return yield_until(deadline);
        };
        let Some(ticket) = wait.enter() else {
            return yield_until(deadline);
        };
        if !self.arm() || !self.sources().prepare_wait() {
            return Pause::Over(Wake::Ready);
        }
        ticket.pause(deadline)
    }
}

/// fi_trywait(3) for all that share a wait object.
///
/// # Errors
/// `FI_EAGAIN` when the application must read something first.
pub fn may_block<'a, W>(wait: &Wait, members: impl Iterator<Item = &'a W> + Clone) -> Result
where
    W: Waitable + ?Sized + 'a,
{
    let mut news = false;
    for member in members.clone() {
        if !member.sources().are_own() {
            return Err(Errno::EAGAIN);
        }
        member.sources().drive();
        news |= member.take_news();
    }
    if news || !wait.prepare_native() {
        return Err(Errno::EAGAIN);
    }
    if !members.clone().all(|member| member.arm()) {
        // Another thread may poll the descriptor, which this one has silenced.
        wait.ring();
        return Err(Errno::EAGAIN);
    }
    if !members
        .clone()
        .all(|member| member.sources().prepare_wait())
    {
        return Err(Errno::EAGAIN);
    }
    wait.native_sleep_begins();
    Ok(())
}

fn yield_until(deadline: Deadline) -> Pause<'static> {
    match deadline.is_over() {
        true => Pause::Over(Wake::TimedOut),
        false => Pause::Yield,
    }
}

impl Attachment {
    /// A wait object of the kind that the application asked for. `set` is the
    /// wait set that came along, if any.
    ///
    /// # Errors
    /// `FI_EINVAL` for [`WaitKind::Set`] without a set, and what opening
    /// descriptors returns.
    pub fn open(kind: WaitKind, set: Option<Arc<WaitSet>>) -> Result<Self> {
        Ok(match kind {
            WaitKind::None => Attachment::None,
            WaitKind::Yield => Attachment::Yield,
            WaitKind::Set => Attachment::Set(set.ok_or(Errno::EINVAL)?),
            WaitKind::Unspec => Attachment::own(WaitKind::Fd)?,
            WaitKind::Fd | WaitKind::MutexCond | WaitKind::PollFd => Attachment::own(kind)?,
        })
    }

    fn own(kind: WaitKind) -> Result<Self> {
        Ok(Attachment::Own(kind, Box::new(Wait::new(kind)?)))
    }

    /// The wait object to ring.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            Attachment::None | Attachment::Yield => None,
            Attachment::Own(_, wait) => Some(wait),
            Attachment::Set(set) => set.wait(),
        }
    }

    /// Whether any thread may come by: a wait set belongs to a fabric, and not to a
    /// domain.
    pub fn is_in_set(&self) -> bool {
        matches!(self, Attachment::Set(_))
    }

    /// The kind that `FI_GETWAITOBJ` reports.
    pub fn kind(&self) -> WaitKind {
        match self {
            Attachment::None => WaitKind::None,
            Attachment::Yield => WaitKind::Yield,
            Attachment::Own(kind, _) => *kind,
            Attachment::Set(set) => set.kind(),
        }
    }

    /// Whether the library's own blocking calls are allowed.
    pub fn can_block(&self) -> bool {
        matches!(self, Attachment::Yield | Attachment::Own(..))
    }
}
