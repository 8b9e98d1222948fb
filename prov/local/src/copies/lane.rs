//! What a lane has to do with copies, whichever provider it is of: when they are
//! made, and who hears of them.

use prov_base::errno::Result;
use prov_message::{Core, Transport};

use super::{Copier, Copying, Helping, Transfer, Work};

/// A lane that copies from the memory of its peers, and helps them with theirs.
pub trait Copies: Core {
    /// The copies of the lane.
    fn copier(&mut self) -> &mut Copier<Self::Transport>;

    /// Sees to it that a thread that sleeps does what there is to be copied.
    fn wake_for_copies(&mut self);

    /// [`Copier::next`].
    fn next_copy(&mut self) -> Option<Box<Copying<Self::Transport>>>;

    /// [`Copier::next_help`].
    fn next_help(&mut self) -> Option<Box<Helping>>;

    /// There is something to do: others need not have the processor.
    fn note_work(&mut self);

    /// [`Copier::back`], with what waits on the link of the copies.
    fn take_back(
        &mut self,
        copying: Box<Copying<Self::Transport>>,
    ) -> Option<Back<Self::Transport>>;

    /// Copies of a link are over, or their turn is. `transfers` is empty afterwards.
    fn copied(
        &mut self,
        link: LinkOf<Self>,
        transfers: &mut Vec<Transfer<Self::Transport>>,
        outcome: Result,
    );

    /// What the peer of a link has said while its copy was helped with
    /// ([`Copier::helped`]).
    fn heard_late(&mut self, link: LinkOf<Self>, words: [u64; 3]);

    /// Has a link's next transfer copied in its turn, which comes even if nothing
    /// comes for a thread that sleeps.
    fn copy_in_turn(&mut self, link: LinkOf<Self>) {
        self.copier().add(link);
        self.wake_for_copies();
    }

    /// The next copy, or part of a peer's, to be made without the lane's lock
    /// ([`Core::next_errand`]). While the owner of receives is away, none begins:
    /// when one is over, its link goes on.
    #[inline]
    fn next_work(&mut self) -> Option<Work<Self::Transport>> {
        match (self.copier().is_idle(), self.endpoints().is_deaf()) {
            (true, _) => None,
            (false, true) => self.copier().next_begun().map(Work::Copy),
            (false, false) => self.begin_work(),
        }
    }

    #[cold]
    fn begin_work(&mut self) -> Option<Work<Self::Transport>> {
        // Two that copy from each other help each other, too.
        let first = match self.copier().owes_help() {
            true => self.next_help(),
            false => None,
        };
        let next = match first {
            Some(helping) => Some(Work::Help(helping)),
            None => match self.next_copy() {
                Some(copying) => Some(Work::Copy(copying)),
                None => self.next_help().map(Work::Help),
            },
        };
        if let Some(work) = &next
            && !work.waits()
        {
            self.note_work();
        }
        next
    }

    /// Work is done ([`Core::errand_done`]).
    fn worked(&mut self, work: Work<Self::Transport>) {
        let copying = match work {
            Work::Copy(copying) => copying,
            Work::Help(helping) => {
                if let Some((link, words)) = self.copier().helped(helping) {
                    self.heard_late(link, words);
                }
                return;
            }
        };
        let link = copying.link();
        let Some((mut transfers, outcome)) = self.take_back(copying) else {
            // Whoever sleeps may have found it under way.
            return self.wake_for_copies();
        };
        self.copied(link, &mut transfers, outcome);
        self.copier().emptied(transfers);
    }
}

/// The links of a lane.
type LinkOf<L> = <<L as Core>::Transport as Transport>::Link;
/// What [`Copier::back`] gives.
pub type Back<T> = (Vec<Transfer<T>>, Result);
