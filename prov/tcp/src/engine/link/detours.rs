//! The flags that force messages of a connection onto the slow path.

/// A reason for the slow path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Detour {
    /// A message waits, unread, for a receive (flow control). Nothing after it is read until then.
    HeldBack = 1 << 0,
    /// The peer has too many unread answers. Nothing more is read from it until it has read some of
    /// them.
    Overdue = 1 << 1,
    /// The connection is in bulk mode: little is read ahead of large messages.
    Bulk = 1 << 2,
    /// The poller has reported that the peer sends no more. It does so only once, and reading then
    /// has to continue until the end of the stream.
    PeerEnded = 1 << 3,
    /// A message that was read waits for the end of copies from the peer's memory. Nothing after it is
    /// read until then.
    BehindCopies = 1 << 4,
    /// Each message is logged.
    Traced = 1 << 5,
    /// The handshake has not ended.
    Unopened = 1 << 6,
    /// The peer's byte order is different.
    Foreign = 1 << 7,
    /// The peer requires that every message is announced.
    Throttled = 1 << 8,
    /// A remote operation with immediate data waits until the application has read completions.
    /// Nothing after it is read until then.
    Unreported = 1 << 9,
    /// Copies from the peer's memory are in progress on the connection of a connected endpoint, which
    /// completes receives in order.
    CopiesFirst = 1 << 10,
    /// The connection has several subflows, or is about to have them.
    Multipath = 1 << 11,
}

/// The current reasons, as a bit set that is tested with one operation for each message.
#[derive(Clone, Copy, Debug)]
pub struct Detours(u16);

/// Reasons that block all received messages.
const PAUSES: u16 = Detour::HeldBack as u16
    | Detour::Overdue as u16
    | Detour::Unreported as u16
    | Detour::BehindCopies as u16;
/// Reasons for messages of both directions.
const ALWAYS: u16 = Detour::Unopened as u16 | Detour::Foreign as u16;
/// Reasons for received messages.
const IN: u16 = ALWAYS | PAUSES | Detour::CopiesFirst as u16 | Detour::Traced as u16;
/// Reasons for messages that are read from the socket.
const READ: u16 = IN | Detour::Bulk as u16 | Detour::PeerEnded as u16 | Detour::Multipath as u16;
/// Reasons for messages that are sent.
const OUT: u16 = ALWAYS | Detour::Throttled as u16 | Detour::Multipath as u16;

impl Detours {
    /// The reasons of a new connection.
    pub const FIRST: Detours = Detours(Detour::Unopened as u16);

    #[inline(always)]
    pub fn has(self, detour: Detour) -> bool {
        self.0 & detour as u16 != 0
    }

    #[inline(always)]
    pub fn set(&mut self, detour: Detour, is_there: bool) {
        self.0 = self.0 & !(detour as u16) | if is_there { detour as u16 } else { 0 };
    }

    /// Whether reading is paused.
    #[inline(always)]
    pub fn pause(self) -> bool {
        self.0 & PAUSES != 0
    }

    /// Whether received messages may take the fast path.
    #[inline(always)]
    pub fn let_in(self) -> bool {
        self.0 & IN == 0
    }

    /// Whether messages that are read from the socket may take the fast path.
    #[inline(always)]
    pub fn let_read(self) -> bool {
        self.0 & READ == 0
    }

    /// Whether messages that are sent may take the fast path.
    #[inline(always)]
    pub fn let_out(self) -> bool {
        self.0 & OUT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_for_the_messages_that_it_concerns() {
        let mut detours = Detours::FIRST;
        assert!(!detours.let_in() && !detours.let_read() && !detours.let_out());
        detours.set(Detour::Unopened, false);
        assert!(detours.let_in() && detours.let_read() && detours.let_out());
        for (detour, pauses, lets_in, lets_read, lets_out) in [
            (Detour::HeldBack, true, false, false, true),
            (Detour::Overdue, true, false, false, true),
            (Detour::Unreported, true, false, false, true),
            (Detour::Bulk, false, true, false, true),
            (Detour::PeerEnded, false, true, false, true),
            (Detour::BehindCopies, true, false, false, true),
            (Detour::CopiesFirst, false, false, false, true),
            (Detour::Traced, false, false, false, true),
            (Detour::Unopened, false, false, false, false),
            (Detour::Foreign, false, false, false, false),
            (Detour::Throttled, false, true, true, false),
            (Detour::Multipath, false, true, false, false),
        ] {
            detours.set(detour, true);
            assert!(detours.has(detour));
            assert_eq!(
                (
                    detours.pause(),
                    detours.let_in(),
                    detours.let_read(),
                    detours.let_out()
                ),
                (pauses, lets_in, lets_read, lets_out),
                "{detour:?}"
            );
            detours.set(detour, false);
            assert!(!detours.has(detour));
        }
    }
}
