//! Messages that the application sends (fi_msg(3)): one at a time, or in batches.

use std::os::fd::AsFd;

use fabric_abi::FI_REMOTE_CQ_DATA;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr::Encoded;
use prov_base::socket::udp;
use prov_base::socket::udp::outbox::Sent;
use prov_message::{Context, EpKey, Op, Ticket};
use prov_util::request::Transmit;

use super::{Core, Source};
use crate::bases::LONGEST;

/// Longest message in bytes that is batched: copying a longer one takes as long as a system call.
const HELD_LONGEST: usize = LONGEST;
/// Limit of the messages in a batch: as many as the system takes as one piece (`UDP_MAX_SEGMENTS`).
const HELD: usize = 64;
/// Limit of the bytes in a batch: those of one piece (`UDP_SEGMENT`).
const HELD_BYTES: usize = 65_507;

impl Core {
    /// Posts a message.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if the socket is full, `-FI_EMSGSIZE` for a message that is too long,
    /// `-FI_EINVAL` for a number that is no peer's, `-FI_ENOSYS` with immediate data, for which a
    /// datagram has no place.
    #[inline(always)]
    pub(super) fn post_message(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        if message.flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::ENOSYS);
        }
        let port = self.ports.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        let to = port.destination(message.peer)?;
        if !port.outbox.is_empty() || port.burst.would_hold_back(&self.signals) {
            return self.post_with_others(ep, message, &to);
        }
        udp::send(port.socket.as_fd(), &message.buffers, &to)?;
        port.burst.sent();
        self.report_sent(ep, message);
        Ok(())
    }

    #[inline(always)]
    fn report_sent(&self, ep: EpKey, message: &Transmit) {
        if let Some(state) = self.endpoints.get(ep) {
            state.reports.plain_message(ep, message);
        }
    }

    /// Posts a message that is batched with others.
    #[inline(never)]
    fn post_with_others(&mut self, ep: EpKey, message: &mut Transmit, to: &Encoded) -> Result {
        if message.buffers.len() > HELD_LONGEST {
            return self.post_behind_others(ep, message, to);
        }
        if self.is_full(ep) {
            self.flush(ep);
            if self.is_full(ep) {
                return Err(Errno::EAGAIN);
            }
        }
        let ticket = self.endpoints.begin(Op::of_transmit(ep, message))?;
        let Some(port) = self.ports.get_mut(ep) else {
            ticket.abandon();
            return Err(Errno::EOPBADSTATE);
        };
        port.outbox.push(&message.buffers, to);
        port.ops.push_back(ticket);
        debug_assert!(port.outbox.len() <= HELD && port.ops.len() == port.outbox.len());
        self.has_deferred_work = true;
        if !self.holds && !port.is_stalled {
            self.holds = true;
            self.signals.burst_begins();
        }
        if self.is_full(ep) {
            self.flush(ep);
        }
        Ok(())
    }

    /// Posts a message that is too long for a batch: it is sent after the batch.
    fn post_behind_others(&mut self, ep: EpKey, message: &mut Transmit, to: &Encoded) -> Result {
        self.flush(ep);
        let port = self.ports.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        if !port.outbox.is_empty() {
            return Err(Errno::EAGAIN);
        }
        udp::send(port.socket.as_fd(), &message.buffers, to)?;
        port.burst.sent();
        self.report_sent(ep, message);
        Ok(())
    }

    /// Removes a message with this context from the batch, for fi_cancel(3).
    pub(super) fn take_back_unsent(&mut self, ep: EpKey, context: Context) -> Option<Ticket> {
        let port = self.ports.get_mut(ep)?;
        let mut ops = port.ops.iter();
        let at = ops.position(|ticket| ticket.op().can_be_cancelled_by(context))?;
        port.outbox.withdraw(at);
        let ticket = port.ops.remove(at);
        self.settle_signals();
        ticket
    }

    /// Returns whether the batch has reached a limit.
    fn is_full(&self, ep: EpKey) -> bool {
        let port = self.ports.get(ep);
        port.is_some_and(|port| {
            port.outbox.len() >= HELD || port.outbox.bytes() + LONGEST > HELD_BYTES
        })
    }

    /// Sends the batch of a port, and reports the completions.
    pub(super) fn flush(&mut self, ep: EpKey) {
        self.send_waiting(ep);
        self.report_left(ep);
    }

    /// Sends the batch of a port. Returns whether anything was sent.
    fn send_waiting(&mut self, ep: EpKey) -> bool {
        let Some(port) = self
            .ports
            .get_mut(ep)
            .filter(|port| !port.outbox.is_empty())
        else {
            return false;
        };
        let mut any = false;
        let is_stalled = loop {
            let (left, outcome) = port.outbox.send(port.socket.as_fd());
            any |= left != 0;
            let sent = port.ops.drain(..left.min(port.ops.len()));
            port.ended.extend(sent.map(|ticket| (ticket, Ok(()))));
            match outcome {
                Sent::All => break false,
                Sent::Full => break true,
                Sent::Failed(error) => {
                    let failed = port.ops.pop_front();
                    port.ended.extend(failed.map(|ticket| (ticket, Err(error))));
                }
            }
        };
        if is_stalled && !port.is_stalled {
            self.signals.stall_begins();
        }
        port.is_stalled = is_stalled;
        self.settle_signals();
        any
    }

    /// Updates the lane's signals: whether a batch waits, and whether a socket is full.
    pub(super) fn settle_signals(&mut self) {
        let mut ports = self.ports.values();
        let waits = ports.any(|port| !port.outbox.is_empty() && !port.is_stalled);
        if self.holds && !waits {
            self.holds = false;
            self.signals.burst_ends();
        }
        if !self.ports.values().any(|port| port.is_stalled) {
            self.signals.stall_ends();
        }
    }

    /// Reports the operations that have ended.
    pub(super) fn report_left(&mut self, ep: EpKey) {
        let Some(port) = self.ports.get_mut(ep) else {
            return;
        };
        self.has_deferred_work |= !port.outbox.is_empty();
        let mut ended = std::mem::take(&mut port.ended);
        for (ticket, outcome) in ended.drain(..) {
            self.endpoints.finish(ticket, outcome);
        }
        // Its memory is used again.
        if let Some(port) = self.ports.get_mut(ep) {
            port.ended = ended;
        }
    }

    /// Sends the batches for an application that makes no call. Returns whether anything was sent; the
    /// application's next call reports it.
    pub(super) fn flush_for_application(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.keys.len() {
            if let Some(&ep) = self.keys.get(at) {
                any |= self.send_waiting(ep);
            }
        }
        self.has_deferred_work = true;
        any
    }

    /// Has the poller report when full sockets become writable.
    pub(super) fn watch_for_room(&mut self) {
        for (ep, port) in &mut self.ports {
            if port.is_stalled && !port.is_watched_for_room {
                port.is_watched_for_room = true;
                let socket = port.socket.as_fd();
                self.poller.tell_again(socket, Source::Port(ep));
            }
        }
    }
}
