//! Several TCP connections (subflows) that carry one stream, as multipath TCP has them.
//!
//! The sender divides its stream into frames, each of which any subflow may carry; it keeps what it
//! has sent until that is acknowledged. Short messages leave on the first subflow. Of more data,
//! each subflow takes the next frame when its socket has room, so that a slow one gets less. If one
//! fails, what it carried is sent again on the others. The receiver puts the frames in order, and
//! drops what it has already: above this module there is one stream, each byte of which arrives
//! once.

pub mod joined;
mod pace;
pub mod plan;
mod reassembly;
mod receiving;
mod retained;
mod subflow;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use prov_base::buffer::Outgoing;
use prov_base::errno::{Errno, Result};

use self::joined::Joined;
use self::plan::Plan;
use self::reassembly::Reassembly;
use self::retained::Retained;
use self::subflow::Subflow;
use crate::wire::WireError;
use crate::wire::multipath::{MAX_DATA, Token, WINDOW};

/// Number of bytes that wait to be sent from which on all subflows take some.
const WORTH_DIVIDING: u64 = 32 << 10;
/// Largest number of bytes that wait until a socket has room, for each subflow: enough to keep it
/// busy, and few enough to stay in a processor's cache until they leave.
const WAITING: u64 = 256 << 10;
/// Number of received bytes after which an acknowledgement is sent.
const ACK_EVERY: u64 = 256 << 10;
/// Time for which a host may owe the kernel an acknowledgement before the subflow counts as failed,
/// if another one works. It exceeds two retransmissions on a path with a short round trip.
const SILENCE: Duration = Duration::from_millis(500);

/// See the [module](self) description.
pub struct Multipath {
    pub token: Token,
    /// What this side does to add subflows.
    pub plan: Plan,
    /// Whether this side has to announce that it sends in frames.
    pub must_depart: bool,
    /// Number of the subflow whose socket is that of the connection.
    pub anchor: Option<u8>,
    /// Whether that subflow has failed.
    pub anchor_failed: bool,
    /// The subflows that have failed.
    pub lost: Vec<u8>,
    /// Those of them that the log does not mention yet, and why.
    pub news: Vec<(u8, Errno)>,
    /// The subflows that the peer has added.
    pub joined: Vec<(u8, Joined)>,
    /// When the subflows are looked at next.
    pub due: Option<Instant>,
    /// Whether something may be in flight: it was at the last look, or was sent since.
    pub is_busy: bool,
    /// In the order of their numbers.
    flows: Vec<Subflow>,
    /// Whether outgoing data is sent in frames.
    is_out: bool,
    /// Position in the queue up to which outgoing data is sent without frames, if it ends there.
    pub plain_until: Option<u64>,
    /// Whether incoming data comes in frames.
    is_in: bool,
    /// Whether the peer has received everything that was sent without frames: no subflow can repeat
    /// that.
    is_confirmed: bool,
    retained: Retained,
    /// Up to where everything was sent once.
    sent: u64,
    /// Number of bytes that the caller has offered last and that were not accepted.
    offered: u64,
    /// What has to be sent again.
    repeats: VecDeque<Range<u64>>,
    reassembly: Reassembly,
    /// The last acknowledgement that was sent.
    acked: u64,
    /// Whether an acknowledgement has to be sent.
    owes_ack: bool,
    /// Position for which the peer has asked for one.
    asked: Option<u64>,
    /// Whether and for which position this side has to ask.
    asks: Asks,
    /// Number of the subflow that takes the next frame.
    turn: usize,
    /// How the last subflow that can send has failed.
    error: Option<Errno>,
    /// What the peer has done wrong.
    fault: Option<WireError>,
    /// Subflows that have ended since the caller has asked.
    ended: Vec<Ended>,
}

/// The end of a subflow.
pub enum Ended {
    /// Nothing more is sent on the one with this number. It may still be read.
    Failed {
        number: u8,
        reason: Errno,
        /// How long it existed.
        age: Duration,
    },
    /// Its socket is not used any more.
    Closed(OwnedFd),
}

/// Whether the peer is asked for an acknowledgement of all that was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Not,
    /// When everything was sent.
    ToBe,
    /// It was asked, for this position.
    Done(u64),
}

impl Multipath {
    /// Creates a stream on its first subflow, which is not divided yet.
    pub fn new(token: Token, first: OwnedFd, plan: Plan) -> Self {
        Multipath {
            token,
            plan,
            must_depart: false,
            anchor: Some(0),
            anchor_failed: false,
            lost: Vec::new(),
            news: Vec::new(),
            joined: Vec::new(),
            due: None,
            is_busy: false,
            flows: vec![Subflow::new(0, first)],
            is_out: false,
            plain_until: None,
            is_in: false,
            is_confirmed: false,
            retained: Retained::default(),
            sent: 0,
            offered: 0,
            repeats: VecDeque::new(),
            reassembly: Reassembly::default(),
            acked: 0,
            owes_ack: false,
            asked: None,
            asks: Asks::Not,
            turn: 0,
            error: None,
            fault: None,
            ended: Vec::new(),
        }
    }

    /// Adds a subflow; the one with this number is replaced.
    pub fn add(&mut self, number: u8, socket: OwnedFd) {
        if let Some(index) = self.index_of(number) {
            self.stop_sending(index, Errno::ECONNRESET);
            self.remove(index);
        }
        let at = self.flows.partition_point(|flow| flow.number < number);
        self.flows.insert(at, Subflow::new(number, socket));
        self.error = None;
        self.pump();
    }

    fn index_of(&self, number: u8) -> Option<usize> {
        self.flows.iter().position(|flow| flow.number == number)
    }

    /// Returns the numbers of the subflows that work.
    pub fn working(&self) -> impl Iterator<Item = u8> {
        let working = self.flows.iter().filter(|flow| flow.can_send);
        working.map(|flow| flow.number)
    }

    /// Returns the socket of a subflow.
    pub fn socket_of(&self, number: u8) -> Option<BorrowedFd<'_>> {
        self.index_of(number)
            .and_then(|index| self.flows.get(index))
            .map(Subflow::socket)
    }

    /// Removes and returns the subflows that have ended.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Whether something has happened that is not the arrival of data.
    pub fn has_news(&self) -> bool {
        self.has_ended_some() || self.anchor_failed || self.fault.is_some() || self.is_over()
    }

    /// Whether there are any.
    pub fn has_ended_some(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Removes and returns all sockets.
    pub fn into_sockets(self) -> impl Iterator<Item = OwnedFd> {
        self.flows.into_iter().map(Subflow::into_socket)
    }

    /// Whether outgoing data is sent in frames.
    pub fn is_out(&self) -> bool {
        self.is_out
    }

    /// Whether incoming data comes in frames.
    pub fn is_in(&self) -> bool {
        self.is_in
    }

    /// Notes that everything that precedes the frames was sent.
    pub fn departs(&mut self) {
        self.plain_until = None;
        self.is_out = true;
        // The peer learns from it that its own plain data has arrived.
        self.owes_ack |= self.is_in;
        self.pump();
    }

    /// Notes that what the peer sends comes in frames from here on; `rest` was read after that.
    ///
    /// # Errors
    /// It has announced that before.
    pub fn comes_in(&mut self, rest: &[u8]) -> std::result::Result<(), WireError> {
        if self.is_in {
            return Err(WireError::Field("subject"));
        }
        self.is_in = true;
        // The peer announces it after this side has, or this side answers.
        self.is_confirmed |= self.is_out;
        self.owes_ack |= self.is_out;
        if let Some(first) = self.flows.first_mut() {
            first.was_read(rest);
        }
        self.has_event();
        self.pump();
        Ok(())
    }

    /// Handles events of all sockets.
    pub fn has_event(&mut self) {
        for flow in &mut self.flows {
            flow.has_event(true, false);
        }
    }

    /// Handles an event of the socket of the connection, or of one of the others: whether it may be
    /// read, and may have ended.
    pub fn has_event_on(&mut self, is_anchor: bool, is_readable: bool, may_end: bool) {
        for flow in &mut self.flows {
            if (self.anchor == Some(flow.number)) == is_anchor || self.anchor.is_none() {
                flow.has_event(is_readable, may_end);
            }
        }
    }

    /// Sends what waits, without having been told that there is room.
    pub fn go_on(&mut self) {
        self.has_event();
        if self.retained.len() == WINDOW {
            self.receive_aside();
        }
        self.pump();
    }

    /// Whether there may be something to receive.
    pub fn may_receive(&self) -> bool {
        let flows = &mut self.flows.iter();
        let has_frames = flows.any(|flow| flow.end.is_none() && flow.is_readable);
        self.is_in && (has_frames || !self.reassembly.front().is_empty())
    }

    /// Whether there is something that has to leave.
    pub fn has_to_send(&self) -> bool {
        self.is_out
            && (self.sent < self.retained.end()
                || !self.repeats.is_empty()
                || self.flows.iter().any(|flow| !flow.is_between_frames()))
    }

    /// Asks the peer to acknowledge everything, once that is sent.
    pub fn ask_for_ack(&mut self) {
        if self.asks != Asks::Done(self.retained.end()) {
            self.asks = Asks::ToBe;
        }
        self.pump();
    }

    /// Whether the peer has not acknowledged everything.
    pub fn awaits_ack(&self) -> bool {
        self.retained.len() != 0
    }

    /// Whether more data is accepted.
    pub fn has_room(&self) -> bool {
        self.room() != 0
    }

    fn room(&self) -> u64 {
        let waiting = self.retained.end() - self.sent;
        let limit = WAITING * self.flows.len() as u64;
        let window = WINDOW - self.retained.len();
        window.min(limit.saturating_sub(waiting))
    }

    /// Whether all subflows have ended.
    pub fn is_over(&self) -> bool {
        self.flows.iter().all(|flow| flow.end.is_some())
    }

    /// Returns what the peer has done wrong.
    pub fn take_fault(&mut self) -> Option<WireError> {
        self.fault.take()
    }

    /// Accepts bytes to send, of the host's memory; returns their number, `-FI_EAGAIN` if there is no
    /// room.
    ///
    /// # Errors
    /// That of the last subflow.
    pub fn send_out(&mut self, out: &Outgoing<'_>) -> Result<usize> {
        self.accept(out.len(), |at, room| out.read_at(at, room))
    }

    /// As [`Multipath::send_out`].
    ///
    /// # Errors
    /// That of the last subflow.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        self.accept(bytes.len(), |at, room| {
            let part = bytes.get(at..).unwrap_or_default();
            let len = part.len().min(room.len());
            if let (Some(room), Some(part)) = (room.get_mut(..len), part.get(..len)) {
                room.copy_from_slice(part);
            }
            len
        })
    }

    fn accept(
        &mut self,
        len: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize> {
        let mut done = 0;
        self.offered = len as u64;
        while done < len {
            if self.working().next().is_none() {
                return match done {
                    0 => Err(self.error.unwrap_or(Errno::ECONNRESET)),
                    done => Ok(done),
                };
            }
            if self.room() == 0 {
                self.pump();
            }
            if self.room() == 0 && self.retained.len() == WINDOW {
                // Acknowledgements may have arrived, even if nothing else is received at present.
                self.receive_aside();
                self.pump();
            }
            // Not more at once than subflows take meanwhile, to send it while it is in a cache.
            let room = self.room().min(WAITING) as usize;
            if room == 0 {
                break;
            }
            let room = room.min(len - done);
            let accepted = self
                .retained
                .append(room, |at, memory| fill(done + at, memory));
            done += accepted;
            self.offered = (len - done) as u64;
            self.pump();
            if accepted == 0 {
                break;
            }
        }
        match done {
            0 if len != 0 => Err(Errno::EAGAIN),
            done => Ok(done),
        }
    }

    /// Sends what waits, as far as the sockets accept it.
    pub fn pump(&mut self) {
        if !self.is_out {
            return;
        }
        loop {
            let mut any = false;
            for step in 0..self.flows.len() {
                let index = (self.turn + step) % self.flows.len().max(1);
                any |= self.send_on(index);
            }
            self.turn = (self.turn + 1) % self.flows.len().max(1);
            if !any {
                break;
            }
        }
    }

    /// Sends on a subflow; returns whether it has accepted anything.
    fn send_on(&mut self, index: usize) -> bool {
        let first = self.flows.iter().position(|flow| flow.can_send);
        // The peer may not read the first subflow as long as it has to act upon what precedes the
        // frames there, and it may have to send meanwhile.
        let is_acked_elsewhere = !self.is_confirmed && self.working().any(|number| number != 0);
        let waiting = self.retained.end() - self.sent;
        let may_take = match waiting {
            ..WORTH_DIVIDING => first == Some(index),
            _ => self.is_in_time(index, waiting + self.offered),
        };
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        if flow.takes_frames() {
            if self.owes_ack && !(is_acked_elsewhere && flow.number == 0) {
                self.owes_ack = false;
                self.acked = self.reassembly.next();
                flow.acknowledge(self.acked);
            }
            if let Some(range) = self.repeats.pop_front() {
                let len = self.retained.bytes(range.start, range.end).len() as u64;
                let start = range.start.max(self.retained.acked());
                if start + len < range.end {
                    self.repeats.push_front(start + len..range.end);
                }
                if len != 0 {
                    flow.begin(start..start + len);
                }
            } else if waiting != 0 && may_take {
                let end = self.retained.end();
                let len = self.retained.bytes(self.sent, end).len() as u64;
                flow.begin(self.sent..self.sent + len);
                self.sent += len;
            }
        }
        let is_all = self.sent == self.retained.end() && self.repeats.is_empty();
        if self.asks == Asks::ToBe && is_all && flow.can_send && flow.data_is_sent() {
            flow.ask(self.sent);
            self.asks = Asks::Done(self.sent);
        }
        if !flow.can_send || flow.is_between_frames() {
            return false;
        }
        match flow.send(&self.retained) {
            Ok(any) => {
                self.is_busy |= any;
                any
            }
            Err(error) => {
                self.stop_sending(index, error);
                true
            }
        }
    }

    /// Whether what a subflow takes now is delivered before another one has delivered everything that
    /// waits: otherwise it would be the last to arrive, and what comes after it would wait for it.
    fn is_in_time(&mut self, index: usize, waiting: u64) -> bool {
        let is_free = |flow: &Subflow| flow.takes_frames();
        if !self.flows.get(index).is_some_and(is_free) || self.flows.len() == 1 {
            return true;
        }
        let now = Instant::now();
        let Some(own) = self
            .flows
            .get_mut(index)
            .and_then(|flow| flow.time_for(now, 0))
        else {
            return true;
        };
        let mut others = self.flows.iter_mut().enumerate();
        others.all(|(other, flow)| {
            other == index
                || !flow.can_send
                || flow.time_for(now, waiting).is_none_or(|time| own <= time)
        })
    }

    /// Handles that a subflow has failed: the others send what it carried.
    fn stop_sending(&mut self, index: usize, error: Errno) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        if !flow.can_send {
            return;
        }
        let lost = flow.stop_sending();
        let ended = Ended::Failed {
            number: flow.number,
            reason: error,
            age: flow.since.elapsed(),
        };
        self.error = Some(error);
        if flow.number == 0 && !self.is_confirmed {
            // What was sent without frames is lost with it.
            for flow in &mut self.flows {
                flow.stop_sending();
                flow.end = Some(Err(error));
            }
        }
        let acked = self.retained.acked();
        let lost = lost.into_iter().filter(|range| range.end > acked);
        self.repeats.extend(lost);
        // The last acknowledgement may be lost, and a request for one.
        self.owes_ack |= self.acked != 0;
        if let Asks::Done(_) = self.asks {
            self.asks = Asks::ToBe;
        }
        self.ended.push(ended);
    }

    /// Removes a subflow, unless it is the last one.
    fn remove(&mut self, index: usize) {
        if self.flows.len() > 1 {
            let flow = self.flows.remove(index);
            self.ended.push(Ended::Closed(flow.into_socket()));
        }
    }

    /// Looks for subflows whose host does not answer although another one's does, which fail.
    /// Returns whether answers are due.
    pub fn look_for_silence(&mut self, now: Instant) -> bool {
        let mut silent = Vec::new();
        let mut is_due = false;
        let mut others = 0;
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if !flow.can_send {
                continue;
            }
            let silence = flow.silence(now);
            // While its interface is down, what the socket has does not even leave for a while.
            is_due |= silence.is_some() || flow.has_queued();
            match silence {
                Some(silence) if silence >= SILENCE => silent.push(index),
                Some(silence) if silence >= SILENCE / 2 => {}
                _ => others += 1,
            }
        }
        if others != 0 {
            for index in silent {
                self.stop_sending(index, Errno::ETIMEDOUT);
            }
            self.pump();
        }
        is_due
    }
}

const _: () = assert!(WORTH_DIVIDING <= MAX_DATA as u64 && ACK_EVERY * 4 <= WINDOW);
