//! The send queue of a connection, sent in order along its [`path`](crate::local::path).

mod debt;
mod lent;
mod overtaking;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_local::link::aside::Aside;
use std::collections::VecDeque;

use prov_base::buffer::{Ahead, AppIov, Iov, Outgoing};
use prov_base::errno::{Errno, Result};
use prov_base::socket::tcp::CALL_LIMIT;
use prov_base::warn_again;
use prov_message::{RmaTarget, Ticket};
use prov_util::mr::Grant;

use crate::local::path::{Path, zeros};

pub use self::debt::{Debt, Span};
pub use self::lent::ZeroCopySends;
use self::overtaking::Answers;

/// Queued bytes of the library and of the application, and the operations that complete when the
/// kernel has accepted them.
#[derive(Default)]
pub struct Outbox {
    /// The library's bytes of all segments, beginning at `head`.
    bytes: Vec<u8>,
    /// Number of bytes at the front of `bytes` that the kernel has accepted.
    head: usize,
    /// The bytes to send, in order; no segment is empty.
    segments: VecDeque<QueuedPiece>,
    /// Operations by the position in the stream where each ends, ascending.
    done: VecDeque<(u64, Ticket)>,
    /// Position in the stream up to which the kernel has accepted everything.
    sent: u64,
    /// Position in the stream of the end of the queue.
    queued: u64,
    /// Position in the stream up to which the queue needs no memory of the application: the
    /// operations up to there are complete.
    released: u64,
    /// Bytes of devices that are sent next, by their positions in the stream.
    ahead: Ahead,
    answers: Answers,
}

enum QueuedPiece {
    /// This many bytes of [`Outbox::bytes`].
    Own(usize),
    /// Memory of an operation in flight.
    App(AppIov),
    /// A copy of such memory, beginning at an offset.
    Aside(Aside, usize),
    /// Registered memory, beginning at an offset.
    Registered(Grant, usize),
    /// This many zeros, instead of registered memory that is not mapped.
    Zeros(usize),
}

impl QueuedPiece {
    /// Returns the number of bytes to send.
    fn len(&self) -> usize {
        match self {
            QueuedPiece::Own(len) | QueuedPiece::Zeros(len) => *len,
            QueuedPiece::App(memory) => memory.len(),
            QueuedPiece::Aside(copy, from) => copy.bytes().len() - from,
            QueuedPiece::Registered(grant, from) => grant.len() - from,
        }
    }
}

impl Outbox {
    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether there is nothing to send, nor to report of what was sent: a message that is sent now
    /// may be reported immediately.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        // One branch: every message that is sent takes it.
        self.segments.len() | self.done.len() == 0
    }

    /// Whether a device reads the next bytes: the socket does not tell when they may be sent.
    pub fn waits_for_device(&self) -> bool {
        self.ahead.is_waiting()
    }

    /// Returns the number of bytes to send.
    #[inline]
    pub fn len(&self) -> u64 {
        self.queued - self.sent
    }

    /// Returns the position in the stream up to which everything has been sent.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the position in the stream after a message of `len` bytes that is posted next.
    #[inline]
    pub fn end_of_next(&self, len: usize) -> u64 {
        self.queued + len as u64
    }

    /// Returns the positions in the stream of its beginning and end.
    #[inline]
    pub fn span(&self) -> Span {
        Span {
            sent: self.sent,
            queued: self.queued,
        }
    }

    /// Returns the number of bytes of memory that it takes, without the application's.
    #[inline]
    pub fn room(&self) -> usize {
        self.own_len() + self.segments.len() * size_of::<QueuedPiece>()
    }

    /// Returns the number of the library's bytes in it.
    #[inline]
    pub fn own_len(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Appends bytes of the library.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.grow_own(bytes.len());
    }

    /// Appends bytes of the library and a copy of application memory.
    #[inline]
    pub fn push_with(&mut self, bytes: &[u8], memory: &Iov<'_>) {
        self.bytes.extend_from_slice(bytes);
        memory.append_to(&mut self.bytes);
        self.grow_own(bytes.len() + memory.len());
    }

    /// Appends a copy of application memory.
    #[inline]
    pub fn push_copy(&mut self, memory: &Iov<'_>) {
        if memory.is_empty() {
            return;
        }
        memory.append_to(&mut self.bytes);
        self.grow_own(memory.len());
    }

    #[inline]
    fn grow_own(&mut self, len: usize) {
        self.queued += len as u64;
        match self.segments.back_mut() {
            Some(QueuedPiece::Own(own)) => *own += len,
            _ => self.segments.push_back(QueuedPiece::Own(len)),
        }
    }

    /// Appends application memory, which must not change until it is sent.
    pub fn push_app(&mut self, memory: AppIov) {
        if !memory.is_empty() {
            self.queued += memory.len() as u64;
            self.segments.push_back(QueuedPiece::App(memory));
            bounded!(self.segments, OPERATIONS);
        }
    }

    /// Appends registered memory.
    pub fn push_registered(&mut self, grant: Grant) {
        if !grant.is_empty() {
            self.queued += grant.len() as u64;
            self.segments.push_back(QueuedPiece::Registered(grant, 0));
            bounded!(self.segments, OPERATIONS);
        }
    }

    /// Completes `op` when the kernel has accepted everything queued so far.
    #[inline]
    pub fn push_op(&mut self, op: Ticket) {
        self.done.push_back((self.queued, op));
        bounded!(self.done, OPERATIONS);
    }

    /// Counts bytes that were sent while the queue was empty.
    #[inline]
    pub fn sent_directly(&mut self, len: usize) {
        self.queued += len as u64;
        self.sent += len as u64;
    }

    /// Whether operations wait for the kernel to accept their bytes.
    #[inline]
    pub fn has_ops(&self) -> bool {
        !self.done.is_empty()
    }

    /// Returns the number of bytes to send of operations that were set aside, and of what is between
    /// them.
    #[inline]
    pub fn aside(&self) -> u64 {
        self.released.saturating_sub(self.sent)
    }

    /// Replaces the application's memory by copies, for operations that end within the next `room`
    /// bytes. [`Outbox::pop_done`] then returns them.
    pub fn set_aside(&mut self, room: u64) {
        let (mut index, mut at) = (0, self.sent);
        for (end, _) in &self.done {
            if end.saturating_sub(self.sent) > room {
                return;
            }
            while at < *end {
                let Some(segment) = self.segments.get_mut(index) else {
                    return;
                };
                at += segment.len() as u64;
                index += 1;
                if let QueuedPiece::App(memory) = segment {
                    let Some(copy) = Aside::copy_of(memory) else {
                        return;
                    };
                    *segment = QueuedPiece::Aside(copy, 0);
                }
            }
            self.released = *end;
        }
    }

    /// Returns the next operation whose bytes the kernel has accepted, or that were set aside.
    #[inline]
    pub fn pop_done(&mut self) -> Option<Ticket> {
        match self.done.front() {
            Some((end, _)) if *end <= self.sent || *end <= self.released => {
                self.done.pop_front().map(|(_, op)| op)
            }
            _ => None,
        }
    }

    /// Sends until the queue is empty (`true`) or the kernel accepts no more. Application memory of
    /// at least `zerocopy` bytes is sent without a copy, which is noted in `lent`.
    #[allow(
        clippy::indexing_slicing,
        reason = "the segments are those of the bytes"
    )]
    pub fn flush(
        &mut self,
        registered: &mut Option<RmaTarget>,
        mut path: Path<'_>,
        zerocopy: usize,
        lent: &mut ZeroCopySends,
    ) -> Result<bool> {
        let zerocopy = match lent.enabled && !path.is_short() && !path.is_divided() {
            true => zerocopy,
            false => usize::MAX,
        };
        // The segments that were offered last and have an unreadable one among them.
        let mut suspects = usize::MAX;
        while !self.segments.is_empty() {
            if let (1, Some(&QueuedPiece::Own(len))) = (self.segments.len(), self.segments.front())
            {
                let bytes = &self.bytes[self.head..self.head + len];
                match path.send(bytes) {
                    Ok(taken) => {
                        self.advance(taken);
                        if taken < len && !path.has_turned() {
                            return Ok(false);
                        }
                    }
                    Err(Errno::EAGAIN) => return Ok(false),
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            if let Some(QueuedPiece::App(memory)) = self.segments.front()
                && memory.len() >= zerocopy
                && let Some(outcome) = send_uncopied(memory, path.socket())
            {
                let (len, taken) = (memory.len(), outcome?);
                if taken > 0 {
                    lent.note_sent();
                }
                self.advance(taken);
                if taken < len && taken < CALL_LIMIT {
                    return Ok(false);
                }
                continue;
            }
            let mut out = Outgoing::default();
            let mut own = self.head;
            let mut granted = None;
            let mut flags = libc::MSG_DONTWAIT;
            let mut count = 0;
            for segment in self.segments.iter().take(suspects) {
                count += 1;
                let fits = match segment {
                    QueuedPiece::Own(len) => {
                        let fits = out.push(&self.bytes[own..own + len]);
                        own += len;
                        fits
                    }
                    QueuedPiece::App(memory) if memory.len() >= zerocopy && !out.is_empty() => {
                        // It is sent by the next call.
                        flags |= libc::MSG_MORE;
                        false
                    }
                    QueuedPiece::App(memory) => out.push_app(memory),
                    QueuedPiece::Aside(copy, from) => out.push(&copy.bytes()[*from..]),
                    QueuedPiece::Registered(grant, from) => {
                        granted = Some((grant, *from));
                        false
                    }
                    QueuedPiece::Zeros(len) => out.push(zeros(*len)) && *len == zeros(*len).len(),
                };
                if !fits || out.is_full() {
                    break;
                }
            }
            let ahead = (self.sent, &mut self.ahead);
            let (offered, sent) = match granted {
                None => (out.len(), path.send_out(out, flags, ahead)),
                Some((grant, from)) => {
                    path.send_registered(out, registered.as_mut(), (grant, from), ahead)
                }
            };
            match sent {
                Ok(taken) => {
                    suspects = usize::MAX;
                    // Registered memory may be unmapped from there on: the next call tells.
                    let is_full = taken < offered && taken < CALL_LIMIT && granted.is_none();
                    self.advance(taken);
                    if is_full && !path.has_turned() {
                        return Ok(false);
                    }
                }
                Err(Errno::EAGAIN) => return Ok(false),
                Err(Errno::EINTR) => {}
                // One of the segments is not mapped: they are sent one by one.
                Err(Errno::EFAULT) if count > 1 => suspects = 1,
                Err(Errno::EFAULT) if self.unmapped() => suspects = usize::MAX,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Handles that the first segment cannot be read. Registered memory is sent as zeros from
    /// there on: who has registered it has no operation that could fail. Returns whether it is.
    #[cold]
    fn unmapped(&mut self) -> bool {
        let Some(segment) = self.segments.front_mut() else {
            return false;
        };
        let QueuedPiece::Registered(grant, from) = segment else {
            return false;
        };
        warn_again!(
            target: crate::LOG.ep_data,
            "registered memory that a peer reads is not mapped: it is sent as zeros"
        );
        *segment = QueuedPiece::Zeros(grant.len() - *from);
        true
    }

    fn advance(&mut self, mut taken: usize) {
        self.sent += taken as u64;
        while taken > 0 {
            let Some(segment) = self.segments.front_mut() else {
                break;
            };
            match segment {
                QueuedPiece::Own(len) => {
                    let n = taken.min(*len);
                    self.head += n;
                    *len -= n;
                    taken -= n;
                    if *len > 0 {
                        break;
                    }
                }
                QueuedPiece::App(memory) => {
                    let n = taken.min(memory.len());
                    taken -= n;
                    if n < memory.len() {
                        memory.split_to(n);
                        break;
                    }
                }
                QueuedPiece::Aside(copy, from) => {
                    let n = taken.min(copy.bytes().len() - *from);
                    taken -= n;
                    *from += n;
                    if *from < copy.bytes().len() {
                        break;
                    }
                }
                QueuedPiece::Registered(grant, from) => {
                    let n = taken.min(grant.len() - *from);
                    taken -= n;
                    *from += n;
                    if *from < grant.len() {
                        break;
                    }
                }
                QueuedPiece::Zeros(len) => {
                    let n = taken.min(*len);
                    *len -= n;
                    taken -= n;
                    if *len > 0 {
                        break;
                    }
                }
            }
            self.segments.pop_front();
        }
        if self.head == self.bytes.len() {
            self.bytes.clear();
            self.head = 0;
            // An idle connection keeps little memory.
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes = Vec::new();
            }
        } else if self.head > COMPACT_AT && self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }

    /// Clears the queue; returns all operations in it, oldest first.
    pub fn abandon(&mut self) -> Vec<Ticket> {
        self.segments.clear();
        self.ahead.forget();
        self.bytes = Vec::new();
        self.head = 0;
        self.sent = self.queued;
        self.done.drain(..).map(|(_, op)| op).collect()
    }

    /// Returns the number of bytes of memory that the queue has allocated.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
            + self.aside() as usize
            + self.segments.capacity() * size_of::<QueuedPiece>()
            + self.done.capacity() * size_of::<(u64, Ticket)>()
    }

    /// Provides an empty buffer with capacity, for coalescing.
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffer;
        }
    }

    /// Returns the buffer, once the queue is empty.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        if !self.segments.is_empty() || self.bytes.capacity() == 0 {
            return None;
        }
        // An idle connection keeps little memory.
        self.segments.shrink_to(KEPT_ENTRIES);
        self.done.shrink_to(KEPT_ENTRIES);
        self.answers = Answers::default();
        Some(std::mem::take(&mut self.bytes))
    }
}

/// Sends memory without a copy. Returns the number of bytes that the kernel accepted, which may be
/// 0; `None` if it cannot send without a copy at the moment.
fn send_uncopied(memory: &Iov<'_>, socket: std::os::fd::BorrowedFd<'_>) -> Option<Result<usize>> {
    if memory.has_device() {
        return None;
    }
    let mut out = Outgoing::default();
    out.push_app(memory);
    match out.send(socket, libc::MSG_DONTWAIT | libc::MSG_ZEROCOPY) {
        Ok(taken) => Some(Ok(taken)),
        Err(Errno::EAGAIN | Errno::EINTR) => Some(Ok(0)),
        Err(Errno::ENOBUFS) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Number of entries for which an empty queue keeps memory: 6 KiB, of which there may be thousands.
const KEPT_ENTRIES: usize = 64;
/// Number of bytes that an empty queue may keep allocated.
const KEPT_CAPACITY: usize = 256 * 1024;
/// Number of sent bytes at the front of the buffer from which on the rest is moved to the front, if
/// it is shorter.
const COMPACT_AT: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use prov_message::{Context, EpKey, Ledger, Op, OpClass};

    use super::*;

    #[test]
    fn bytes_leave_in_order_however_little_the_kernel_takes() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut large = vec![0u8; 3 << 20];
        for (i, byte) in large.iter_mut().enumerate() {
            *byte = (i * 7 / 3) as u8;
        }
        // SAFETY: `large` outlives the queue, and is not accessed otherwise.
        let [memory, start] =
            [large.len(), 100].map(|len| unsafe { AppIov::from_raw(large.as_mut_ptr(), len) });
        let mut outbox = Outbox::default();
        outbox.push(b"head");
        outbox.push_app(memory);
        outbox.push(b"mid");
        outbox.push_copy(&start);
        let mut expected = b"head".to_vec();
        expected.extend(&large);
        expected.extend(b"mid");
        expected.extend(&large[..100]);
        let mut got: Vec<u8> = Vec::new();
        let mut piece = vec![0; 10_000];
        loop {
            let empty = outbox
                .flush(
                    &mut None,
                    Path::through(near.as_fd()),
                    usize::MAX,
                    &mut ZeroCopySends::default(),
                )
                .unwrap();
            if empty && outbox.is_empty() && got.len() == expected.len() {
                break;
            }
            let n = far.read(&mut piece).unwrap();
            got.extend(&piece[..n]);
        }
        assert!(got == expected);
        assert_eq!((outbox.len(), outbox.own_len()), (0, 0));
    }

    /// Messages of these lengths in a queue, each an operation, and their memory.
    fn queue(lens: &[usize], ledger: &mut Ledger) -> (Outbox, Vec<Vec<u8>>) {
        let mut outbox = Outbox::default();
        let mut memories = Vec::new();
        for (i, &len) in lens.iter().enumerate() {
            let mut memory = vec![i as u8 + 1; len];
            // SAFETY: the memory is kept as long as the queue, and not accessed while it is read.
            let app = unsafe { AppIov::from_raw(memory.as_mut_ptr(), len) };
            memories.push(memory);
            outbox.push(b"head");
            outbox.push_app(app);
            let op = Op {
                ep: EpKey::default(),
                class: OpClass::Send,
                report: true,
                is_inject: false,
                len,
                context: Context(i),
            };
            outbox.push_op(ledger.count(op));
        }
        (outbox, memories)
    }

    fn done(outbox: &mut Outbox) -> Vec<usize> {
        let ops = std::iter::from_fn(|| outbox.pop_done());
        ops.map(|ticket| {
            let number = ticket.op().context.0;
            ticket.abandon();
            number
        })
        .collect()
    }

    #[test]
    fn the_oldest_operations_are_set_aside_as_far_as_there_is_room() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let lens = [300_000, 200_000, 600_000, 1000];
        let mut ledger = Ledger::new(100);
        let (mut outbox, mut memories) = queue(&lens, &mut ledger);
        let flush = |outbox: &mut Outbox| {
            let path = Path::through(near.as_fd());
            let mut lent = ZeroCopySends::default();
            outbox.flush(&mut None, path, usize::MAX, &mut lent)
        };
        // A part of the first one leaves.
        assert_eq!(flush(&mut outbox), Ok(false));
        let left = outbox.len() as usize;
        assert!(left < lens.iter().sum::<usize>() && done(&mut outbox).is_empty());
        // The third one does not fit, and the last one waits behind it.
        outbox.set_aside(600_000);
        assert_eq!(done(&mut outbox), [0, 1]);
        assert!((200_000..=500_008).contains(&outbox.aside()));
        assert_eq!(outbox.len() as usize, left);
        let expected: Vec<u8> = memories
            .iter()
            .flat_map(|memory| b"head".iter().chain(memory))
            .copied()
            .collect();
        for memory in &mut memories[..2] {
            memory.fill(0xff);
        }
        let mut got: Vec<u8> = Vec::new();
        let mut piece = vec![0; 100_000];
        while got.len() < expected.len() {
            flush(&mut outbox).unwrap();
            let n = far.read(&mut piece).unwrap();
            got.extend(&piece[..n]);
        }
        assert!(got == expected);
        assert_eq!(done(&mut outbox), [2, 3]);
        assert_eq!((outbox.len(), outbox.aside()), (0, 0));
    }
}
