//! What the library's thread ([`prov_util::drive`]) does for an application that makes no calls for a
//! while, and what it leaves to the application's next call.
//!
//! It sends what is due, and looks at what has arrived: acknowledgements, and packets that peers repeat
//! because an acknowledgement was lost, which are acknowledged again. It does so as long as operations
//! are not acknowledged or peers may repeat packets, and not while a thread sleeps in the library, which
//! wakes up for what arrives. Nothing else that arrives is handled, and nothing is reported.

use std::time::Instant;

use prov_base::lately::nanoseconds;

use super::Core;
use crate::protocol::Endpoint;

/// Most reads of what has arrived, of 32 datagrams each, at one time.
const READS: u32 = 8;

impl Core {
    /// Does what is due for an application that makes no calls. Returns whether acknowledgements have
    /// waited.
    pub(super) fn send_for_application(&mut self) -> bool {
        let (now, driven) = (nanoseconds(), self.driven_at);
        let is_asleep = self.slept_at == driven;
        self.is_quiet = true;
        let sent = self.with_protocol(|protocol, core| {
            if !is_asleep {
                core.answer_peers_that_repeat(protocol, now);
            }
            let holds = protocol.has_delayed_acks(now);
            protocol.show_life(now, driven, core);
            let has_room = protocol.acknowledge_all(now, core);
            core.is_looked_after = !has_room
                || protocol.unfinished() != 0
                || (!is_asleep && protocol.may_be_asked(now))
                // What says that peers do not wait any longer may not have been handled.
                || protocol.is_awaited(driven);
            holds
        });
        self.is_quiet = false;
        if !self.is_looked_after {
            self.signals.stall_ends();
        }
        self.note_left_over();
        sent.unwrap_or(false)
    }

    /// Handles acknowledgements and repeated packets that have arrived. The rest is left to the
    /// application, as far as there are buffers.
    fn answer_peers_that_repeat(&mut self, protocol: &mut Endpoint<Core>, now: u64) {
        let Some(mut arrivals) = self.arrivals.take() else {
            return;
        };
        for _ in 0..READS {
            if !arrivals.may_leave_more() || !arrivals.read() {
                break;
            }
            while let Some(arrived) = arrivals.next() {
                let bytes = arrivals.bytes(&arrived);
                match protocol.receive_meanwhile(now, arrived.from, bytes, self) {
                    true => arrivals.handled(arrived),
                    false => arrivals.leave(arrived),
                }
            }
            if !arrivals.has_left_some() {
                break;
            }
        }
        self.arrivals = Some(arrivals);
    }

    /// Notes whether anything is left to the application's next call. If so, the lane's descriptor
    /// becomes readable, as it would be if nothing had been read below.
    fn note_left_over(&mut self) {
        let has_arrivals = |core: &Core| {
            let arrivals = core.arrivals.as_ref();
            arrivals.is_some_and(|arrivals| arrivals.has_left_over())
        };
        self.has_left_over =
            !self.postponed.is_empty() || !self.ended.is_empty() || has_arrivals(self);
        if self.has_left_over
            && let Some(below) = &self.below
            && below.setting.has_sleepers
        {
            self.poller.wake_at(Instant::now());
        }
    }

    /// Reports and handles what was left over. Returns whether datagrams were handled.
    #[cold]
    #[inline(never)]
    pub(super) fn take_in_left_over(&mut self, now: u64) -> bool {
        for (op, outcome) in std::mem::take(&mut self.postponed) {
            self.operation_done(op, outcome);
        }
        self.settle();
        if self.has_no_room() {
            return false;
        }
        self.has_left_over = false;
        let Some(mut arrivals) = self.arrivals.take() else {
            return false;
        };
        let any = self.with_protocol(|protocol, core| {
            let mut any = false;
            while let Some(arrived) = arrivals.take_left_over() {
                protocol.receive(now, arrived.from, arrivals.bytes(&arrived), core);
                arrivals.handled(arrived);
                any = true;
            }
            any
        });
        self.arrivals = Some(arrivals);
        any.unwrap_or(false)
    }
}
