//! Sending from the application's memory without a copy in the kernel (`MSG_ZEROCOPY`): the kernel
//! reports on the socket's error queue when it has released the memory, and the operation does not
//! complete before.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use prov_base::socket::zerocopy;
use prov_message::Ticket;

/// A connection's messages whose memory the kernel may still read.
#[derive(Default)]
pub struct ZeroCopySends {
    /// Whether the socket supports it.
    pub enabled: bool,
    /// Number of calls with `MSG_ZEROCOPY`, modulo 2^32 as the kernel counts them.
    sent: u32,
    /// Number of calls whose memory is released.
    released: u32,
    /// Operations by the number of calls made when they were sent.
    waiting: VecDeque<(u32, Ticket)>,
}

impl ZeroCopySends {
    /// Whether no operation waits for its memory.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Counts a call with `MSG_ZEROCOPY`.
    pub fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Keeps an operation that was sent until its memory is released. Returns it if that is so
    /// already.
    #[inline]
    pub fn hold(&mut self, op: Ticket) -> Option<Ticket> {
        if self.sent == self.released {
            return Some(op);
        }
        self.waiting.push_back((self.sent, op));
        bounded!(self.waiting, OPERATIONS);
        None
    }

    /// Returns the next operation whose memory is released.
    pub fn pop_released(&mut self) -> Option<Ticket> {
        let calls = self.waiting.front()?.0;
        // The difference is small, even if one number has wrapped around.
        if (self.released.wrapping_sub(calls) as i32) < 0 {
            return None;
        }
        self.waiting.pop_front().map(|(_, ticket)| ticket)
    }

    /// Reads the kernel's reports of a socket.
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

    /// Removes and returns all operations.
    pub fn abandon(&mut self) -> impl Iterator<Item = Ticket> {
        self.waiting.drain(..).map(|(_, op)| op)
    }
}
