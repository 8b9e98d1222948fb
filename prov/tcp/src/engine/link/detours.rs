//! Why messages on a connection may not take the short way.

/// One reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Detour {
    /// A message waits, unread, for a receive to take it. Nothing behind it is
    /// read until then.
    HeldBack = 1 << 0,
    /// The peer has not read too many of its answers. Nothing more is read from
    /// it until it has read some of them.
    Overdue = 1 << 1,
    /// Large messages come: little is read ahead of them.
    Bulk = 1 << 2,
    /// The poller has said that the peer sends no more. It says so only once, and
    /// then reading has to go on until the end of the stream shows.
    PeerEnded = 1 << 3,
    /// Something is being copied from the peer's memory, or a message waits for
    /// that.
    Copying = 1 << 4,
    /// Each message is logged.
    Traced = 1 << 5,
    /// The handshake is not over.
    Unopened = 1 << 6,
    /// The peer has the other byte order.
    Foreign = 1 << 7,
    /// The peer wants every message announced.
    Throttled = 1 << 8,
    /// A remote operation with immediate data waits until the application has read
    /// completions. Nothing behind it is read until then.
    Unreported = 1 << 9,
}

/// Those that there are now, in one place, which every message looks at.
#[derive(Clone, Copy, Debug)]
pub struct Detours(u16);

/// Those that let nothing pass which comes.
const PAUSES: u16 = Detour::HeldBack as u16 | Detour::Overdue as u16 | Detour::Unreported as u16;
/// Those for any message.
const ALWAYS: u16 = Detour::Unopened as u16 | Detour::Foreign as u16;
/// Those for messages that come.
const IN: u16 = ALWAYS | PAUSES | Detour::Copying as u16 | Detour::Traced as u16;
/// Those for messages that come and are read from the socket.
const READ: u16 = IN | Detour::Bulk as u16 | Detour::PeerEnded as u16;
/// Those for messages that go.
const OUT: u16 = ALWAYS | Detour::Throttled as u16;

impl Detours {
    /// Those of a connection that begins.
    pub const FIRST: Detours = Detours(Detour::Unopened as u16);

    #[inline(always)]
    pub fn has(self, detour: Detour) -> bool {
        self.0 & detour as u16 != 0
    }

    #[inline(always)]
    pub fn set(&mut self, detour: Detour, is_there: bool) {
        self.0 = self.0 & !(detour as u16) | if is_there { detour as u16 } else { 0 };
    }

    /// Whether nothing more is read for now.
    #[inline(always)]
    pub fn pause(self) -> bool {
        self.0 & PAUSES != 0
    }

    /// Whether there are none for messages that come.
    #[inline(always)]
    pub fn let_in(self) -> bool {
        self.0 & IN == 0
    }

    /// Whether there are none for messages that come and are read from the socket.
    #[inline(always)]
    pub fn let_read(self) -> bool {
        self.0 & READ == 0
    }

    /// Whether there are none for messages that go.
    #[inline(always)]
    pub fn let_out(self) -> bool {
        self.0 & OUT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_for_those_whom_it_concerns() {
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
            (Detour::Copying, false, false, false, true),
            (Detour::Traced, false, false, false, true),
            (Detour::Unopened, false, false, false, false),
            (Detour::Foreign, false, false, false, false),
            (Detour::Throttled, false, true, true, false),
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
