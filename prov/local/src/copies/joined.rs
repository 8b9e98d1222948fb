//! The owner's part of a copy that the peer's process helps with
//! ([`joint`](crate::joint)).

use prov_message::{Place, Transport};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::process_memory::OtherIov;

use super::{BYTES_PER_TURN, Goal, Transfer};
use crate::joint::{Board, Cut, Helped, Open, What};
use crate::process::{OtherProcess, Witness};
use crate::ring::Broken;

/// Bytes from which on the peer is asked to help: so many take as long as it needs
/// to see that.
pub const LEAST: u64 = 256 << 10;

/// Looks whether the helper is done, in one turn.
const LOOKS: u32 = 64;
/// Turns in vain after which others have the processor.
const TURNS: u32 = 4;
/// Turns in vain between two looks whether the helper lives.
const TURNS_OF_LIFE: u32 = 256;
/// And how long each of them takes from then on, where there is nothing else to
/// copy.
const REST: std::time::Duration = std::time::Duration::from_micros(50);

/// The joint copies of a link, one at a time.
pub(super) struct Meeting {
    board: Board,
    /// Of the last copy.
    generation: u32,
    /// The peer's process, by what lasts as long as that; `None` before the first
    /// copy.
    witness: Option<Witness>,
    /// Whether the peer cannot help.
    is_off: bool,
    open: Option<Opened>,
}

/// A copy that is open.
struct Opened {
    open: Open,
    cut: Cut,
    /// Where the bytes go.
    to: AppIov,
    /// Turns in which the helper was waited for.
    turns: u32,
    /// What has become of the owner's part.
    outcome: Result,
}

/// How far a turn has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is more to do, or to wait for.
    GoesOn,
    /// It is over: so many bytes from the first on are in their place.
    Copied(u64),
    /// Or this has gone wrong.
    Failed(Errno),
}

impl Meeting {
    pub(super) fn new(board: Board) -> Self {
        Meeting {
            board,
            generation: 0,
            witness: None,
            is_off: false,
            open: None,
        }
    }

    /// Whether a copy is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether all there is to do for the one that is open is to wait.
    pub(super) fn waits(&self) -> bool {
        self.open.as_ref().is_some_and(|opened| opened.turns != 0)
    }

    /// Whether it may be asked for help.
    pub(super) fn may_help(&self) -> bool {
        !self.is_off
    }

    /// Opens a copy of what the peer calls by this name, if that is possible;
    /// `memory` is the peer's.
    pub(super) fn begin(&mut self, name: u64, to: AppIov, memory: &OtherProcess) {
        let [piece] = to.pieces() else {
            return;
        };
        if self.witness.is_none() {
            let token = self.board.witness();
            let witness = token.map(|token| Witness::new(memory, token));
            match witness {
                Some(Ok(witness)) => self.witness = Some(witness),
                _ => {
                    self.is_off = true;
                    return;
                }
            }
        }
        self.generation = self.generation.wrapping_add(1);
        let what = What {
            name,
            addr: piece.iov_base.expose_provenance() as u64,
            len: to.len() as u64,
        };
        let cut = Cut::of(what.len);
        self.open = Some(Opened {
            open: Open::new(&self.board, self.generation, &what, cut.count()),
            cut,
            to,
            turns: 0,
            outcome: Ok(()),
        });
    }

    /// Nobody wants the copy that is open any more.
    pub(super) fn give_up(&mut self) {
        if let Some(opened) = &mut self.open {
            opened.outcome = opened.outcome.and(Err(Errno::ESHUTDOWN));
        }
    }

    /// Goes on with the copy that is open. `is_only`: there is nothing else to copy.
    pub(super) fn go_on(&mut self, memory: &OtherProcess, from: &OtherIov, is_only: bool) -> Turn {
        let Some(opened) = &mut self.open else {
            return Turn::Copied(0);
        };
        let turn = match opened.turn(&self.board, memory, from) {
            Ok(Step::GoesOn) => Turn::GoesOn,
            Ok(Step::Waits) => {
                opened.turns = opened.turns.saturating_add(1);
                let has_ended = opened.turns.is_multiple_of(TURNS_OF_LIFE)
                    && self.witness.as_ref().is_none_or(Witness::is_gone);
                match has_ended {
                    true => self.alone(),
                    false => {
                        rest(opened.turns, is_only);
                        Turn::GoesOn
                    }
                }
            }
            Ok(Step::Over) => match opened.outcome {
                Ok(()) => Turn::Copied(from.len()),
                Err(error) => Turn::Failed(error),
            },
            Ok(Step::NotHelped) => self.alone(),
            Err(Broken(what)) => {
                log::warn!("a peer of this host has spoilt a copy: {what}");
                self.is_off = true;
                Turn::Failed(Errno::EPROTO)
            }
        };
        if turn != Turn::GoesOn {
            self.open = None;
        }
        turn
    }

    /// The helper has left parts undone: what it has taken is copied again, and the
    /// peer not asked any more.
    fn alone(&mut self) -> Turn {
        self.is_off = true;
        match &self.open {
            None => Turn::Copied(0),
            Some(Opened {
                outcome: Err(error),
                ..
            }) => Turn::Failed(*error),
            Some(opened) => Turn::Copied(opened.cut.part(opened.open.own()).0),
        }
    }
}

/// What a turn has come to.
enum Step {
    GoesOn,
    Waits,
    Over,
    NotHelped,
}

impl Opened {
    fn turn(
        &mut self,
        board: &Board,
        memory: &OtherProcess,
        from: &OtherIov,
    ) -> std::result::Result<Step, Broken> {
        let mut copied = 0;
        while self.outcome.is_ok() {
            if copied >= BYTES_PER_TURN as u64 && board.is_open() {
                return Ok(Step::GoesOn);
            }
            let most = self.cut.within(BYTES_PER_TURN as u64);
            let parts = self.open.claim(board, most)?;
            if parts.is_empty() {
                break;
            }
            let (at, len) = self.cut.parts(parts);
            let to = self.to.slice(at as usize, len as usize);
            self.outcome = memory.copy(&from.slice(at, len), &to);
            copied += len;
        }
        self.open.close(board)?;
        for _ in 0..LOOKS {
            match self.open.helped(board)? {
                Helped::All => return Ok(Step::Over),
                Helped::Failed => return Ok(Step::NotHelped),
                Helped::NotYet => std::hint::spin_loop(),
            }
        }
        Ok(Step::Waits)
    }
}

/// Lets others have the processor: the helper may need it.
fn rest(turns: u32, is_only: bool) {
    if turns > TURNS_OF_LIFE && is_only {
        std::thread::sleep(REST);
    } else if turns > TURNS {
        std::thread::yield_now();
    }
}

/// Where a transfer goes, if the peer could help with it: it has not begun, is
/// large, and goes to memory of an operation.
pub(super) fn destination<T: Transport>(transfer: &Transfer<T>) -> Option<AppIov> {
    let Goal::Place(placing) = &transfer.to else {
        return None;
    };
    let Place::App(memory) = &placing.place else {
        return None;
    };
    let len = transfer.from.len();
    let may_be = len >= LEAST && len <= memory.len() as u64 && placing.done == 0;
    may_be.then(|| memory.slice(0, len as usize))
}

#[cfg(test)]
mod tests;
