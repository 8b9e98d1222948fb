//! A byte stream in each direction through a [`channel`](prov_local::channel), for code that
//! otherwise uses a socket: it accepts and returns as many bytes as there is space for, and does
//! not preserve the boundaries of messages.

use std::os::fd::{BorrowedFd, OwnedFd};

use prov_base::buffer::{Incoming, Iov, Outgoing, Piece};
use prov_base::errno::Result;

use prov_local::channel::{Channel, Head, LONGEST, MODERATE, Next};
use prov_local::ring::Broken;

/// See the [module](self) description.
pub struct SharedStream {
    pub channel: Channel,
    /// Number of bytes of the channel's next message that were received.
    received: usize,
}

/// The outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub bytes: usize,
    /// Whether the other side sleeps and must be woken.
    pub wakes: bool,
}

/// The head of all messages, which carries no information.
const HEAD: Head = Head {
    kind: 0,
    flags: 0,
    words: [0; 3],
};

impl SharedStream {
    /// Creates a stream with a number for the process that attaches to it. Returns this side and
    /// the descriptor for the other one.
    ///
    /// # Errors
    /// Those of [`Channel::create`].
    pub fn create(secret: u64) -> Result<(SharedStream, OwnedFd)> {
        let (channel, fd) = Channel::create()?;
        channel.set_secret(secret);
        Ok((SharedStream::over(channel), fd))
    }

    /// Attaches to a stream that another process has created. Returns it and the number.
    ///
    /// # Errors
    /// Those of [`Channel::attach`].
    pub fn attach(fd: BorrowedFd<'_>) -> Result<(SharedStream, u64)> {
        let channel = Channel::attach(fd)?;
        let secret = channel.secret();
        Ok((SharedStream::over(channel), secret))
    }

    fn over(channel: Channel) -> SharedStream {
        SharedStream {
            channel,
            received: 0,
        }
    }

    /// Sends as many of the bytes as there is space for.
    ///
    /// # Errors
    /// The other side has written an invalid value to the channel.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "parts are within the bytes that they are of"
    )]
    pub fn send(&mut self, bytes: &[u8]) -> std::result::Result<Moved, Broken> {
        let mut moved = Moved {
            bytes: bytes.len(),
            wakes: false,
        };
        let has_sent = !bytes.is_empty()
            && self.channel.sender.send_bytes(
                bytes.len(),
                #[inline(always)]
                |space| _ = space.write(bytes),
                || moved.wakes = true,
            );
        match has_sent {
            true => Ok(moved),
            false => self.send_parts(bytes.len(), |at, space| {
                space.write_at(0, &bytes[at..]);
            }),
        }
    }

    /// Sends as many of the bytes as there is space for.
    ///
    /// # Errors
    /// As [`SharedStream::send`].
    pub fn send_out(&mut self, out: &Outgoing<'_>) -> std::result::Result<Moved, Broken> {
        self.send_parts(out.len(), |at, space| _ = out.copy_to(at, space))
    }

    #[inline(never)]
    fn send_parts(
        &mut self,
        len: usize,
        mut fill: impl FnMut(usize, &Iov<'_>),
    ) -> std::result::Result<Moved, Broken> {
        let mut moved = Moved {
            bytes: 0,
            wakes: false,
        };
        if len > MODERATE {
            // Extends the area to its full size, if that is permitted.
            self.channel.takes(LONGEST);
        }
        while moved.bytes < len {
            let part = (len - moved.bytes).min(MODERATE);
            let Some(space) = self.channel.space(part)? else {
                break;
            };
            fill(moved.bytes, &space.bytes());
            moved.wakes |= space.publish(HEAD);
            moved.bytes += part;
        }
        Ok(moved)
    }

    /// Sends at least one byte; `fill` writes the bytes, and `wake` wakes the other side if it
    /// sleeps. Returns `false`, without any effect, if they are more than
    /// [`INLINE`](prov_local::channel::INLINE) or no slot is known to be free.
    #[inline(always)]
    pub fn send_short(
        &mut self,
        len: usize,
        fill: impl FnOnce(Piece<'_>),
        wake: impl FnOnce(),
    ) -> bool {
        self.channel.sender.send_bytes(len, fill, wake)
    }

    /// Returns the next message, if it is in one slot and no part of it was received.
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'_>> {
        match self.received {
            0 => self.channel.receiver.peek(),
            _ => None,
        }
    }

    /// Whether the next message was received in part.
    #[inline(always)]
    pub fn has_rest(&self) -> bool {
        self.received != 0
    }

    /// Takes a message in one slot. This side has processed it and all data before it
    /// ([`Receiver::settle`](prov_local::channel::Receiver::settle)). Returns whether the other side must be woken.
    #[inline(always)]
    pub fn take_short(&mut self) -> bool {
        let wakes = self.channel.receiver.take_short();
        self.channel.receiver.settle();
        wakes
    }

    /// Receives the data that has arrived, as far as there is space for it.
    ///
    /// # Errors
    /// As [`SharedStream::send`].
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "parts are within the bytes that they are of"
    )]
    pub fn receive(&mut self, to: &mut [u8]) -> std::result::Result<Moved, Broken> {
        self.receive_parts(to.len(), |at, part| {
            part.read_at(0, &mut to[at..at + part.len()]);
        })
    }

    /// Receives the data that has arrived, as far as there is space for it.
    ///
    /// # Errors
    /// As [`SharedStream::send`].
    pub fn receive_in(&mut self, to: &mut Incoming<'_>) -> std::result::Result<Moved, Broken> {
        self.receive_parts(to.len(), |at, part| _ = to.copy_from(at, part))
    }

    #[inline(always)]
    fn receive_parts(
        &mut self,
        room: usize,
        mut take: impl FnMut(usize, &Iov<'_>),
    ) -> std::result::Result<Moved, Broken> {
        let receiver = &mut self.channel.receiver;
        let mut moved = Moved {
            bytes: 0,
            wakes: false,
        };
        while moved.bytes < room
            && let Some(record) = receiver.next()?
        {
            let len = record.len();
            let bytes = Iov::from(receiver.bytes(&record));
            let part = match self.received == 0 && len <= room - moved.bytes {
                true => bytes.view(),
                false => bytes.slice(self.received, room - moved.bytes),
            };
            if part.is_empty() {
                // The message is empty, or shorter than it was.
                return Err(Broken("length of a message"));
            }
            take(moved.bytes, &part);
            moved.bytes += part.len();
            self.received += part.len();
            if self.received == len {
                self.received = 0;
                moved.wakes |= receiver.take(len);
            }
        }
        Ok(moved)
    }

    /// Returns the number of bytes that have arrived and were not received.
    pub fn waiting(&self) -> usize {
        let waiting = self.channel.receiver.waiting();
        waiting.saturating_sub(self.received)
    }

    /// Whether a send would find space. If not, this side waits for it when it sleeps
    /// ([`Channel::sleep`]).
    ///
    /// # Errors
    /// As [`SharedStream::send`].
    pub fn has_room(&mut self) -> std::result::Result<bool, Broken> {
        self.channel.has_room(MODERATE)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use prov_local::doorbell::Doorbell;

    use super::*;

    fn pair() -> (SharedStream, SharedStream) {
        let (here, fd) = SharedStream::create(77).unwrap();
        let (there, secret) = SharedStream::attach(fd.as_fd()).unwrap();
        assert_eq!(secret, 77);
        (here, there)
    }

    proptest! {
        #[test]
        fn bytes_arrive_in_order_however_they_are_divided(
            pieces in prop::collection::vec((1..40_000usize, 1..40_000usize, any::<bool>()), 1..40),
        ) {
            let (mut here, mut there) = pair();
            let total: usize = pieces.iter().map(|(len, ..)| len).sum();
            let all: Vec<u8> = (0..total).map(|at| (at * 7 / 3) as u8).collect();
            let (mut sent, mut got) = (0, Vec::<u8>::new());
            let mut turns = pieces.iter().cycle();
            while got.len() < total {
                let (out, room, scattered) = *turns.next().unwrap();
                let part = &all[sent..total.min(sent + out)];
                let mut into = vec![0; room];
                let (first, second) = part.split_at(part.len() / 3);
                sent += match scattered {
                    false => here.send(part).unwrap().bytes,
                    true => {
                        let mut list = Outgoing::default();
                        assert!(list.push(first) && list.push(second));
                        here.send_out(&list).unwrap().bytes
                    }
                };
                prop_assert_eq!(there.waiting(), sent - got.len());
                let came = match scattered {
                    false => there.receive(&mut into).unwrap().bytes,
                    true => {
                        let (first, second) = into.split_at_mut(room / 2);
                        let mut list = Incoming::default();
                        assert!(list.push(first) && list.push(second));
                        there.receive_in(&mut list).unwrap().bytes
                    }
                };
                got.extend(&into[..came]);
            }
            prop_assert!(got == all);
            prop_assert!(!there.channel.receiver.has_next());
        }
    }

    #[test]
    fn all_bytes_are_settled_once_the_other_side_reports_the_last_ones() {
        let (mut here, mut there) = pair();
        there.channel.receiver.settle();
        assert!(!here.channel.is_settled() && !there.channel.is_settled());
        let (out, mut into) = ([1; 5000], [0; 5000]);
        assert_eq!(here.send(&out).unwrap().bytes, out.len());
        assert!(!here.channel.is_settled());
        // Data that was received in part is not processed yet.
        there.receive(&mut into[..4000]).unwrap();
        there.channel.receiver.settle();
        assert!(!here.channel.is_settled());
        there.receive(&mut into[4000..]).unwrap();
        assert!(!here.channel.is_settled());
        there.channel.receiver.settle();
        assert!(here.channel.is_settled());
    }

    #[test]
    fn a_sender_without_space_has_some_when_the_receiver_has_received() {
        let (mut here, mut there) = pair();
        let out = vec![1; 4 << 20];
        let sent = here.send(&out).unwrap().bytes;
        assert!(sent > MODERATE && sent < out.len());
        assert_eq!(here.has_room(), Ok(false));
        let bell = Doorbell::create().unwrap();
        there.channel.rings(bell.of_peer());
        here.channel.sleep();
        bell.arm();
        let mut into = vec![0; 4 << 20];
        let came = there.receive(&mut into).unwrap();
        assert_eq!((came.bytes, came.wakes), (sent, true));
        assert_eq!(here.has_room(), Ok(true));
        assert_eq!(here.has_room(), Ok(true), "who asks takes none");
    }
}
