//! How a queue or a counter waits, and the steps of going to sleep that all of them share.

use std::sync::Arc;

use super::set::WaitSet;
use super::{Deadline, Pause, Sources, Wait, WaitKind, Wake};
use prov_base::errno::{Errno, Result};

/// The wait object that a queue or a counter was opened with.
pub enum Attachment {
    /// `FI_WAIT_NONE`.
    None,
    /// `FI_WAIT_YIELD`.
    Yield,
    /// Its own wait object.
    Own(WaitKind, Box<Wait>),
    /// `FI_WAIT_SET`.
    Set(Arc<WaitSet>),
}

/// A queue or a counter that can be waited for.
pub trait Waitable: Send + Sync {
    /// Returns its wait object.
    fn attachment(&self) -> &Attachment;

    /// Returns the transports that feed it.
    fn sources(&self) -> &Sources;

    /// Returns whether there is something new for the application to read. A counter reports each
    /// change once.
    fn take_news(&self) -> bool;

    /// Returns whether there is nothing to read; if so, the next entry rings the bell.
    fn arm(&self) -> bool;

    /// Implements fi_trywait(3): checks whether the application may block on the wait object, or,
    /// if there is none, on an object of its own. If it may block on all of its objects,
    /// [`Waitable::sleeps`] has to be called for each.
    ///
    /// # Errors
    /// `FI_EAGAIN` if it must read first.
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

    /// Called when the application goes to sleep as [`Waitable::try_wait`] has allowed.
    fn sleeps(&self) {
        match self.attachment() {
            Attachment::None | Attachment::Yield => {}
            Attachment::Own(..) => self.sources().sleeps(),
            Attachment::Set(set) => set.sleeps(),
        }
    }

    /// Returns what to do until an entry may have arrived: the end of one round of a blocking read.
    fn pause(&self, deadline: Deadline) -> Pause<'_> {
        // A forked child gets no events through inherited objects.
        if !self.sources().are_own() {
            return Pause::Over(Wake::Inherited);
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
        self.sources().sleeps();
        ticket.pause(deadline)
    }
}

/// Implements fi_trywait(3) for all members that share a wait object.
///
/// # Errors
/// `FI_EAGAIN` if the application must read first.
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
        // Another thread may be polling the descriptor, which this one has silenced.
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
    /// Creates a wait object of the requested kind. `set` is the requested wait set, if any.
    ///
    /// # Errors
    /// `FI_EINVAL` for [`WaitKind::Set`] without a set, and those of creating descriptors.
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

    /// Returns the wait object to ring.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            Attachment::None | Attachment::Yield => None,
            Attachment::Own(_, wait) => Some(wait),
            Attachment::Set(set) => set.wait(),
        }
    }

    /// Returns whether any thread may use it: a wait set belongs to a fabric, and not to a domain.
    pub fn is_in_set(&self) -> bool {
        matches!(self, Attachment::Set(_))
    }

    /// Returns the kind that `FI_GETWAITOBJ` reports.
    pub fn kind(&self) -> WaitKind {
        match self {
            Attachment::None => WaitKind::None,
            Attachment::Yield => WaitKind::Yield,
            Attachment::Own(kind, _) => *kind,
            Attachment::Set(set) => set.kind(),
        }
    }

    /// Returns whether the library's own blocking calls are allowed.
    pub fn can_block(&self) -> bool {
        matches!(self, Attachment::Yield | Attachment::Own(..))
    }
}
