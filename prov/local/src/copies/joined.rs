//! The owner's part of a copy that the peer's process helps with
//! ([`joint`](crate::joint)).

mod share;
mod ways;

use std::ops::Range;
use std::time::{Duration, Instant};

use prov_base::buffer::{Iov, Piece};
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;
use prov_message::{Place, Target, Then, Transport};

use self::ways::{Took, Ways, is_shared};
use super::{BYTES_PER_TURN, Goal, Transfer};
use crate::joint::{self, Board, Cut, Helped, LONG_ACCESS, Open, Way, What};
use crate::process::{OtherProcess, Witness};
use crate::ring::Broken;

/// Bytes from which on the peer may be asked to help.
pub const LEAST: u64 = 16 << 10;
/// Bytes from which on it is, though there is more to copy: so many take as long as it
/// needs to see that.
pub(super) const SURE: u64 = 128 << 10;
/// Bytes that are taken out of slots in one turn: meanwhile, the peer may wait for
/// help with a copy of its own.
const RECEIVED_PER_TURN: u64 = 256 << 10;
/// Bytes that the owner of a copy takes at first: help may come meanwhile.
const FIRST: u64 = 32 << 10;
/// How long the owner waits at most for a helper that is at it, before it goes on;
/// and no longer than it would take for what is left.
const PATIENCE: Duration = Duration::from_micros(10);

/// Looks whether the helper is done, in one turn.
const LOOKS: u32 = 64;
/// Turns in vain after which others have the processor.
const TURNS: u32 = 4;
/// Turns in vain between two looks whether the helper lives.
const TURNS_OF_LIFE: u32 = 256;
/// And how long each of them takes from then on, where there is nothing else to
/// copy.
const REST: Duration = Duration::from_micros(50);
/// Looks for the next part of a helper that is at it, in one turn.
const SHORT_LOOKS: u32 = 16;

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
    /// Whether a quarter of the last copy came through slots.
    is_lively: bool,
    ways: Ways,
    /// How the helper's parts of the next copy go.
    way: Way,
    /// Whose turn among slots it is.
    slots: joint::Turn,
    /// Long copies of remote memory access.
    accesses: u32,
    open: Option<Opened>,
}

/// A copy that is open.
struct Opened {
    open: Open,
    to: Destination,
    cut: Cut,
    /// How the helper's parts go.
    way: Way,
    /// Parts that the owner takes at once: more each time that no help comes, if they are
    /// to go through slots.
    most: u16,
    /// Where the helper's go directly: what the owner takes first.
    share: u16,
    /// Whether the helper is at it, and parts will come through slots.
    expects: bool,
    /// How many there were before, if it is a long one of remote memory access.
    access: Option<u32>,
    /// Since when none have come.
    quiet_since: Option<Instant>,
    /// Turns in which the helper was waited for.
    turns: u32,
    began: Instant,
    /// Since when the owner has done its part, if it had to wait for the helper's.
    is_done_since: Option<Instant>,
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
            is_lively: false,
            ways: Ways::default(),
            way: Way::Bounced,
            slots: joint::Turn::default(),
            accesses: 0,
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

    /// Whether a copy is its concern ([`Meeting::begin`]). `is_only`: there is nothing
    /// else to copy from the peer's memory, which could be copied together with it.
    pub(super) fn concerns(&mut self, with: &Destination, is_only: bool) -> bool {
        let least = match with.addr {
            // Writes come one by one, and mostly from two sides at a time.
            0 => 2 * SURE,
            _ if !is_only => SURE,
            _ => LEAST,
        };
        if self.is_off || with.len < least {
            return false;
        }
        self.way = self.ways.choose(with);
        true
    }

    /// Opens a copy of what the peer calls by this name, if that is possible, and help is
    /// of use: else it is for this side alone. `memory` is the peer's.
    pub(super) fn begin(&mut self, name: u64, to: &Destination, memory: &OtherProcess) {
        if self.way == Way::Direct && !is_shared(to) {
            return;
        }
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
        let (first, slots) = match self.way {
            Way::Bounced => self.slots.begin(),
            Way::Direct => (0, 0),
        };
        let what = What {
            name,
            addr: to.addr,
            len: to.len,
            first,
            slots,
        };
        let cut = Cut::of(what.len);
        let share = match self.way {
            Way::Bounced => 0,
            Way::Direct => self.ways.take_first(cut.count()),
        };
        let access = (to.is_access && to.len >= LONG_ACCESS).then_some(self.accesses);
        self.accesses = self.accesses.wrapping_add(access.map_or(0, |_| 1));
        self.open = Some(Opened {
            open: Open::new(&self.board, self.generation, &what, cut.count()),
            to: *to,
            cut,
            way: self.way,
            most: cut.within(FIRST),
            share,
            expects: self.is_lively && self.way == Way::Bounced,
            access,
            began: Instant::now(),
            is_done_since: None,
            quiet_since: None,
            turns: 0,
            outcome: Ok(()),
        });
    }

    /// So many bytes of a copy, the first ones, were made by this side alone, since that is
    /// its way, or for want of a helper.
    pub(super) fn was_not_asked(&mut self, to: &Destination, len: u64, time: Duration) {
        if self.way == Way::Direct {
            self.ways.took(to, Way::Direct, Took { len, time }, false);
        }
    }

    /// Nobody wants the copy that is open any more.
    pub(super) fn give_up(&mut self) {
        if let Some(opened) = &mut self.open {
            opened.outcome = opened.outcome.and(Err(Errno::ESHUTDOWN));
        }
    }

    /// Goes on with the copy that is open. `is_only`: there is nothing else to copy.
    pub(super) fn go_on(&mut self, ends: &mut Ends<'_>, is_only: bool) -> Turn {
        let Some(opened) = &mut self.open else {
            return Turn::Copied(0);
        };
        let mut is_well = false;
        let turn = match opened.turn(&self.board, ends) {
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
                Ok(()) => {
                    is_well = true;
                    Turn::Copied(ends.from.len())
                }
                Err(error) => Turn::Failed(error),
            },
            Ok(Step::NotHelped) => self.alone(),
            Err(Broken(what)) => {
                log::warn!("a peer of this host has spoilt a copy: {what}");
                self.is_off = true;
                Turn::Failed(Errno::EPROTO)
            }
        };
        if turn != Turn::GoesOn
            && let Some(over) = self.open.take()
        {
            let received = over.open.received();
            self.slots.took(received);
            self.is_lively = u32::from(received) * 4 >= over.cut.count().into();
            if is_well {
                self.learn(&over);
            }
        }
        turn
    }

    /// What a copy took that is made.
    fn learn(&mut self, over: &Opened) {
        let (to, time) = (&over.to, over.began.elapsed());
        if over.way == Way::Direct {
            let at_once = over.share <= over.cut.within(BYTES_PER_TURN as u64);
            self.ways.was_shared(at_once, time, over.waited());
        }
        let took = Took { len: to.len, time };
        let has_slots = self.slots.are_all_in_use();
        self.ways.took(to, over.way, took, has_slots);
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
    fn turn(&mut self, board: &Board, ends: &mut Ends<'_>) -> std::result::Result<Step, Broken> {
        let (mut copied, mut received) = (0, 0);
        while self.outcome.is_ok() {
            received += self.receive(board, ends)?;
            if received >= RECEIVED_PER_TURN {
                return Ok(Step::GoesOn);
            }
            if !board.is_open() {
                break;
            }
            if self.expects {
                match self.watch(board, ends)? {
                    0 if self.is_patient(board) => return Ok(Step::GoesOn),
                    0 => self.expects = false,
                    more => {
                        received += more;
                        continue;
                    }
                }
            }
            if copied >= BYTES_PER_TURN as u64 {
                return Ok(Step::GoesOn);
            }
            let parts = self.claim(board)?;
            if parts.is_empty() {
                break;
            }
            let (at, len) = self.cut.parts(parts);
            let began = Instant::now();
            self.outcome = ends.copy(at, len);
            // Shorter pieces are not as short copies are.
            if self.outcome.is_ok() && len >= SURE {
                board.bounce.pace.has_copied(len, began.elapsed());
            }
            copied += len;
        }
        if self.open.close(board)? != 0 && self.outcome.is_ok() {
            return Err(Broken("parts of a copy that nobody has made"));
        }
        for _ in 0..LOOKS {
            self.receive(board, ends)?;
            match self.open.helped(board)? {
                Helped::All => return Ok(Step::Over),
                Helped::Failed => return Ok(Step::NotHelped),
                Helped::NotYet => {
                    self.is_done_since.get_or_insert_with(Instant::now);
                    std::hint::spin_loop();
                }
            }
        }
        Ok(Step::Waits)
    }

    /// The next parts that are the owner's.
    fn claim(&mut self, board: &Board) -> std::result::Result<Range<u16>, Broken> {
        let most = self.cut.within(BYTES_PER_TURN as u64);
        match self.way {
            Way::Bounced => {
                let parts = self.open.claim(board, self.most)?;
                self.most = self.most.saturating_mul(2).min(most);
                Ok(parts)
            }
            Way::Direct if self.open.own() < self.share => {
                let left = self.share - self.open.own();
                self.open.claim_at_once(board, left.min(most))
            }
            Way::Direct if self.open.left().len() <= most.into() => {
                self.open.claim_at_once(board, most)
            }
            Way::Direct => self.open.claim(board, most),
        }
    }

    /// How long the owner has waited for the helper in the end; none if that has done
    /// none of it.
    fn waited(&self) -> Option<Duration> {
        let waited = self.is_done_since.map(|since| since.elapsed());
        self.open.is_helped().then(|| waited.unwrap_or_default())
    }

    /// Looks a few times whether the helper's next part has come, and takes what
    /// has; how many bytes.
    fn watch(&mut self, board: &Board, ends: &mut Ends<'_>) -> std::result::Result<u64, Broken> {
        for _ in 0..SHORT_LOOKS {
            let received = self.receive(board, ends)?;
            if received != 0 || !board.is_open() {
                return Ok(received);
            }
            std::hint::spin_loop();
        }
        Ok(0)
    }

    /// Whether nothing has come for a short time only.
    fn is_patient(&mut self, board: &Board) -> bool {
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        let (_, left) = self.cut.parts(self.open.left());
        let alone = board.bounce.pace.expected(left);
        since.elapsed() < PATIENCE.min(alone)
    }

    /// Takes the parts out of slots that have come; how many bytes.
    fn receive(&mut self, board: &Board, ends: &mut Ends<'_>) -> std::result::Result<u64, Broken> {
        let mut received = 0;
        while received < RECEIVED_PER_TURN
            && let Some((part, slot)) = self.open.in_slot(board)?
        {
            if !self.cut.fits_slots() {
                return Err(Broken("a part in a slot"));
            }
            let (at, len) = self.cut.part(part);
            if self.outcome.is_ok() {
                let pace = &board.bounce.pace;
                let store = self
                    .access
                    .map(|before| pace.take_out(len as usize, before))
                    .unwrap_or_default();
                let bytes = board.bounce.slot(slot, len as usize);
                self.outcome = ends.put(at, bytes, store.past_caches);
                pace.are_out(store, len as usize);
            }
            self.open.was_received(board);
            self.expects = true;
            self.quiet_since = None;
            self.most = self.cut.within(FIRST);
            received += len;
        }
        Ok(received)
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

/// Where a copy goes.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    /// In this process's memory, where that is in one piece and an operation's; else
    /// 0, and the helper cannot put parts there.
    pub(super) addr: u64,
    /// Bytes.
    pub(super) len: u64,
    /// Whether that is remote memory access. Messages are mostly read when they have
    /// come.
    pub(super) is_access: bool,
}

/// Where a transfer goes, if the peer could help with it: it has not begun, is
/// large, and there is room for it.
pub(super) fn destination<T: Transport>(transfer: &Transfer<T>) -> Option<Destination> {
    let Goal::Place(placing) = &transfer.to else {
        return None;
    };
    let len = transfer.from.len();
    if len < LEAST || placing.done != 0 || transfer.offer.is_none() {
        return None;
    }
    let (room, addr) = match &placing.place {
        Place::App(memory) => (memory.len(), address(&memory.slice(0, len as usize))),
        Place::Registered(grants) => (grants.len(), 0),
    };
    let is_access = !matches!(placing.then, Then::Receive(_));
    (len <= room as u64).then_some(Destination {
        addr,
        len,
        is_access,
    })
}

fn address(memory: &Iov<'_>) -> u64 {
    match memory.pieces() {
        [piece] => piece.iov_base.expose_provenance() as u64,
        _ => 0,
    }
}

/// What is copied, and where it goes.
pub(super) struct Ends<'a> {
    pub(super) memory: &'a OtherProcess,
    pub(super) from: &'a OtherIov,
    pub(super) place: &'a Place,
    /// The memory that is registered here.
    pub(super) target: &'a mut Option<Target>,
}

impl Ends<'_> {
    /// Copies `len` bytes from the offset on, as far as there is room for them.
    pub(super) fn copy(&mut self, at: u64, len: u64) -> Result {
        let (memory, from) = (self.memory, self.from.slice(at, len));
        self.each(at as usize, len as usize, |done, to| {
            memory.copy(&from.slice(done as u64, to.len() as u64), to)
        })
    }

    /// Copies these bytes to the offset, as far as there is room for them.
    fn put(&mut self, at: u64, bytes: Piece, past_caches: bool) -> Result {
        self.each(at as usize, bytes.len(), |done, to| {
            bytes.skip(done).copy_to(&to.past_caches(past_caches));
            Ok(())
        })
    }

    /// Does `work` with the memory from the offset on, piece by piece, and how far
    /// that is.
    fn each(
        &mut self,
        at: usize,
        len: usize,
        mut work: impl FnMut(usize, &Iov<'_>) -> Result,
    ) -> Result {
        let mut done = 0;
        while done < len {
            let mut outcome = Ok(());
            let room = self.place.part(self.target, at + done, len - done, |to| {
                if !to.is_empty() {
                    outcome = work(done, to);
                }
            });
            outcome?;
            // What there is no room for is left where it is.
            done += if room == 0 { len - done } else { room };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
