//! Sending from the application's memory without a copy in the kernel
//! (`MSG_ZEROCOPY`): the kernel says on the socket's error queue when it has
//! let go of the memory, and until then the operation is not done.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use prov_base::socket::zerocopy;
use prov_message::Ticket;

/// A connection's messages of which the kernel may still need the memory.
#[derive(Default)]
pub struct Lent {
    /// Whether the socket can do it.
    pub enabled: bool,
    /// Calls that sent so, modulo 2^32 as the kernel counts them.
    sent: u32,
    /// Calls whose memory is free again.
    released: u32,
    /// Operations by the number of calls that were made when they were sent.
    waiting: VecDeque<(u32, Ticket)>,
}

impl Lent {
    /// Whether no operation waits for its memory.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A call has sent so.
    pub fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Keeps an operation that was sent until its memory is free. Gives it
    /// back if that is so already.
    #[inline]
    pub fn hold(&mut self, op: Ticket) -> Option<Ticket> {
        if self.sent == self.released {
            return Some(op);
        }
        self.waiting.push_back((self.sent, op));
        None
    }

    /// The next operation whose memory is free.
    pub fn pop_released(&mut self) -> Option<Ticket> {
        let calls = self.waiting.front()?.0;
        // The difference is small, whichever number has wrapped around.
        if (self.released.wrapping_sub(calls) as i32) < 0 {
            return None;
        }
        self.waiting.pop_front().map(|(_, ticket)| ticket)
    }

    /// Takes in what the kernel says about the socket.
    pub fn listen(&mut self, socket: BorrowedFd<'_>) {
        while self.sent != self.released
            && let Some(last) = zerocopy::next_release(socket)
        {
            let released = last.wrapping_add(1);
            if (released.wrapping_sub(self.released) as i32) > 0 {
                self.released = released;
            }
        }
    }

    /// Gives up waiting.
    pub fn abandon(&mut self) -> impl Iterator<Item = Ticket> {
        self.waiting.drain(..).map(|(_, op)| op)
    }
}
