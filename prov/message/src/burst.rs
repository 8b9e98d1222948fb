//! Which messages of a burst are sent together.

use prov_util::drive::Signals;

/// A burst of messages: messages that are sent after the same call of the application are sent
/// together, except for the first one.
#[derive(Default)]
pub struct Burst {
    /// The application's call ([`Signals::calls`]) after which the last message was sent.
    call: u64,
    /// Number of messages sent after that call.
    sent: u64,
    /// Whether bursts save nothing, since messages go through shared memory.
    is_free: bool,
}

impl Burst {
    /// Returns whether the next message is to be held for a burst; otherwise it is counted as sent.
    #[inline]
    pub fn holds_back(&mut self, signals: &Signals) -> bool {
        let holds_back = self.would_hold_back(signals);
        if !holds_back {
            self.sent();
        }
        holds_back
    }

    /// Returns whether the next message is to be held for a burst.
    #[inline(always)]
    pub fn would_hold_back(&mut self, signals: &Signals) -> bool {
        let call = signals.calls();
        if call != self.call {
            self.call = call;
            self.sent = 0;
        }
        self.sent != 0 && signals.holds_after(self.sent)
    }

    /// Ends holding messages for bursts.
    pub fn set_free(&mut self) {
        self.is_free = true;
        self.sent = 0;
    }

    /// Counts a message that is sent.
    #[inline]
    pub fn sent(&mut self) {
        self.sent += u64::from(!self.is_free);
    }
}
