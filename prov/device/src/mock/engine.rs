//! What the device does: requests are carried out in order, as soon as they can be.

use std::collections::{HashMap, VecDeque};

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::atomic_ops::{Datatype, Op, apply};
use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_util::mr::{Accessor, Held, Job};

use super::completions::Completions;
use super::memory::Known;
use super::{Lent, Status, WorkCompletion};
use crate::device::{Remote, RemoteKind};

/// All objects of the device, by their numbers.
pub(super) struct Engine {
    last: u32,
    pairs: HashMap<u32, Pairing>,
    queues: HashMap<u32, Completions>,
    shared: HashMap<u32, Receives>,
    regions: HashMap<u32, Known>,
    accessor: Accessor,
    is_held: bool,
}

/// A queue pair.
pub(super) struct Pairing {
    send_queue: u32,
    receive_queue: u32,
    shared: Option<u32>,
    peer: Option<u32>,
    has_ended: bool,
    sends: VecDeque<SendWork>,
    /// Largest number of sends that are posted, or whose completion, or that of a later one, was not
    /// polled.
    most_sends: usize,
    taken_sends: usize,
    /// Number of completed sends since the last one with a completion.
    silent: usize,
    receives: Receives,
    /// The outcome of the next send, if a test has chosen it.
    next: Option<Status>,
}

/// Posted receives.
struct Receives {
    posted: VecDeque<Posted>,
    most: usize,
}

/// A receive.
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) lent: Lent,
}

/// A request of a send queue.
pub(super) struct SendWork {
    pub(super) id: u64,
    /// `None` for a message.
    pub(super) remote: Option<Remote>,
    pub(super) payload: Payload,
    pub(super) immediate: Option<u32>,
    pub(super) is_signalled: bool,
}

/// Its local memory.
pub(super) enum Payload {
    /// What was there when the request was posted.
    Inline(Vec<u8>),
    Memory(Lent),
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Memory(lent) => lent.memory.len(),
        }
    }

    fn copy_to(&self, target: &Iov<'_>) {
        match self {
            Payload::Inline(bytes) => target.write_at(0, bytes),
            Payload::Memory(lent) => lent.memory.copy_to(target),
        };
    }

    /// Stores what was read from the peer.
    fn store(&self, source: &Iov<'_>) {
        if let Payload::Memory(lent) = self {
            source.copy_to(&lent.memory);
        }
    }

    fn store_bytes(&self, bytes: &[u8]) {
        if let Payload::Memory(lent) = self {
            lent.memory.write_at(0, bytes);
        }
    }
}

impl Pairing {
    /// Creates a queue pair with these completion queues and sizes, of sends and receives.
    pub(super) fn new(queues: [u32; 2], shared: Option<u32>, sizes: [usize; 2]) -> Self {
        let ([send_queue, receive_queue], [most_sends, most]) = (queues, sizes);
        Pairing {
            send_queue,
            receive_queue,
            shared,
            peer: None,
            has_ended: false,
            sends: VecDeque::new(),
            most_sends,
            taken_sends: 0,
            silent: 0,
            receives: Receives {
                posted: VecDeque::new(),
                most,
            },
            next: None,
        }
    }
}

impl Receives {
    fn add(&mut self, posted: Posted) -> std::result::Result<(), Posted> {
        if self.posted.len() >= self.most {
            return Err(posted);
        }
        self.posted.push_back(posted);
        Ok(())
    }
}

impl Engine {
    pub(super) fn new(accessor: Accessor) -> Self {
        Engine {
            last: 0,
            pairs: HashMap::new(),
            queues: HashMap::new(),
            shared: HashMap::new(),
            regions: HashMap::new(),
            accessor,
            is_held: false,
        }
    }

    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    pub(super) fn add_queue(&mut self, queue: Completions) -> u32 {
        let number = self.number();
        self.queues.insert(number, queue);
        number
    }

    pub(super) fn queue(&mut self, number: u32) -> Option<&mut Completions> {
        self.queues.get_mut(&number)
    }

    pub(super) fn remove_queue(&mut self, number: u32) {
        self.queues.remove(&number);
    }

    pub(super) fn add_region(&mut self, known: Known) -> u32 {
        let number = self.number();
        self.regions.insert(number, known);
        number
    }

    pub(super) fn remove_region(&mut self, number: u32) {
        self.regions.remove(&number);
    }

    pub(super) fn add_shared(&mut self, most: usize) -> u32 {
        let number = self.number();
        let posted = VecDeque::new();
        self.shared.insert(number, Receives { posted, most });
        number
    }

    pub(super) fn remove_shared(&mut self, number: u32) {
        self.shared.remove(&number);
    }

    pub(super) fn add_pair(&mut self, pair: Pairing) -> u32 {
        let number = self.number();
        self.pairs.insert(number, pair);
        number
    }

    pub(super) fn remove_pair(&mut self, number: u32) {
        let Some(pair) = self.pairs.remove(&number) else {
            return;
        };
        if let Some(peer) = pair.peer {
            self.run(peer);
        }
    }

    /// Stops the device, or makes it go on.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.run_all();
    }

    pub(super) fn connect(&mut self, number: u32, peer: u32) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.peer = Some(peer);
        }
        self.run(number);
        self.run(peer);
    }

    pub(super) fn fail_next(&mut self, number: u32, status: Status) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.next = Some(status);
        }
    }

    /// Whether a send queue has room: `-FI_EAGAIN` if not.
    pub(super) fn has_room(&self, number: u32) -> Result {
        let pair = self.pairs.get(&number).ok_or(Errno::EINVAL)?;
        match pair.taken_sends < pair.most_sends {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Adds to a send queue.
    pub(super) fn send(&mut self, number: u32, work: SendWork) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.taken_sends += 1;
            pair.sends.push_back(work);
        }
        self.run(number);
    }

    /// Adds to a receive queue; returns the receive if that is full.
    pub(super) fn receive(
        &mut self,
        number: u32,
        posted: Posted,
    ) -> std::result::Result<(), Posted> {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return Err(posted);
        };
        pair.receives.add(posted)?;
        if pair.has_ended {
            self.flush(number);
        } else if let Some(peer) = pair.peer {
            self.run(peer);
        }
        Ok(())
    }

    /// Adds to a shared receive queue, likewise.
    pub(super) fn receive_shared(
        &mut self,
        number: u32,
        posted: Posted,
    ) -> std::result::Result<(), Posted> {
        let Some(shared) = self.shared.get_mut(&number) else {
            return Err(posted);
        };
        shared.add(posted)?;
        self.run_all();
        Ok(())
    }

    /// A completion was polled: the entries of the send queue are free.
    pub(super) fn polled(&mut self, completion: &WorkCompletion) {
        if let Some(pair) = self.pairs.get_mut(&completion.pair) {
            pair.taken_sends -= completion.frees;
        }
    }

    fn run_all(&mut self) {
        let mut all: Vec<u32> = self.pairs.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().for_each(|number| self.run(number));
    }

    /// Carries out what a queue pair can send.
    fn run(&mut self, number: u32) {
        while !self.is_held {
            let Some(pair) = self.pairs.get_mut(&number) else {
                return;
            };
            if pair.has_ended {
                return self.flush(number);
            }
            let Some(work) = pair.sends.pop_front() else {
                return;
            };
            let next = pair.next.take();
            match next.or_else(|| self.carry_out(number, &work)) {
                Some(status) => self.sent(number, &work, status),
                None => {
                    if let Some(pair) = self.pairs.get_mut(&number) {
                        pair.sends.push_front(work);
                    }
                    return;
                }
            }
        }
    }

    /// Reports the outcome of a send, whose failure ends the connection at both ends.
    fn sent(&mut self, number: u32, work: &SendWork, status: Status) {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        pair.silent += 1;
        let peer = pair.peer;
        if work.is_signalled || status != Status::Success {
            let completion = WorkCompletion {
                id: work.id,
                pair: number,
                status,
                frees: std::mem::take(&mut pair.silent),
                ..WorkCompletion::default()
            };
            let queue = pair.send_queue;
            self.report(queue, completion);
        }
        if status != Status::Success {
            self.fail(number);
            if let Some(peer) = peer {
                self.fail(peer);
            }
        }
    }

    fn report(&mut self, queue: u32, completion: WorkCompletion) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.push(completion);
        }
    }

    /// Ends a connection at one end: its requests are flushed.
    pub(super) fn fail(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        if std::mem::replace(&mut pair.has_ended, true) {
            return;
        }
        let peer = pair.peer;
        self.flush(number);
        if let Some(peer) = peer {
            self.run(peer);
        }
    }

    fn flush(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        let completion = |id, frees| WorkCompletion {
            id,
            pair: number,
            status: Status::Flushed,
            frees,
            ..WorkCompletion::default()
        };
        let (send_queue, receive_queue) = (pair.send_queue, pair.receive_queue);
        let sent = std::mem::take(&mut pair.sends);
        let posted = std::mem::take(&mut pair.receives.posted);
        let mut silent = std::mem::take(&mut pair.silent);
        for work in sent {
            let frees = 1 + std::mem::take(&mut silent);
            self.report(send_queue, completion(work.id, frees));
        }
        for posted in posted {
            self.report(receive_queue, completion(posted.id, 0));
        }
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.silent = silent;
        }
    }

    /// Carries out a send; `None` if it has to wait.
    fn carry_out(&mut self, number: u32, work: &SendWork) -> Option<Status> {
        let to = self.pairs.get(&number)?.peer?;
        let Some(peer) = self.pairs.get(&to).filter(|peer| !peer.has_ended) else {
            return Some(Status::Unreachable);
        };
        if peer.peer != Some(number) {
            // It does not know of the connection yet.
            return None;
        }
        let is_stored = work
            .remote
            .is_some_and(|remote| !matches!(remote.kind, RemoteKind::Write));
        if let Payload::Memory(lent) = &work.payload
            && !self.is_registered(lent, is_stored)
        {
            return Some(Status::LocalAccess);
        }
        let is_received = work.remote.is_none() || !is_stored && work.immediate.is_some();
        if is_received && self.receives(to)?.posted.is_empty() {
            return None;
        }
        let status = match &work.remote {
            None => Status::Success,
            Some(remote) => self.operate(remote, &work.payload),
        };
        match is_received && status == Status::Success {
            true => Some(self.received(to, work)),
            false => Some(status),
        }
    }

    /// The receives that messages to a queue pair consume.
    fn receives(&mut self, number: u32) -> Option<&mut Receives> {
        let pair = self.pairs.get_mut(&number)?;
        match pair.shared {
            Some(shared) => self.shared.get_mut(&shared),
            None => Some(&mut pair.receives),
        }
    }

    /// Has a message, or a write with immediate data, consume a receive; returns the outcome for the
    /// sender.
    fn received(&mut self, to: u32, work: &SendWork) -> Status {
        let Some(posted) = self.receives(to).and_then(|all| all.posted.pop_front()) else {
            return Status::RemoteReceive;
        };
        let is_write = work.remote.is_some();
        let len = work.payload.len();
        let status = match is_write {
            true => Status::Success,
            false if len > posted.lent.memory.len() => Status::TooLong,
            false if !self.is_registered(&posted.lent, true) => Status::LocalAccess,
            false => {
                work.payload.copy_to(&posted.lent.memory);
                Status::Success
            }
        };
        let Some(queue) = self.pairs.get(&to).map(|pair| pair.receive_queue) else {
            return Status::Unreachable;
        };
        let completion = WorkCompletion {
            id: posted.id,
            pair: to,
            status,
            received: len,
            is_write,
            immediate: work.immediate,
            frees: 0,
        };
        self.report(queue, completion);
        match status {
            Status::Success => Status::Success,
            _ => Status::RemoteReceive,
        }
    }

    /// Whether each segment has the key of a region that it is in.
    fn is_registered(&self, lent: &Lent, is_stored: bool) -> bool {
        let mut segments = lent.memory.pieces().iter().zip(&lent.keys);
        segments.all(|(piece, key)| {
            let known = key.and_then(|key| self.regions.get(&key));
            piece.iov_len == 0
                || known.is_some_and(|known| {
                    let offset = piece.iov_base.addr().checked_sub(known.address);
                    let end = offset.and_then(|offset| offset.checked_add(piece.iov_len));
                    end.is_some_and(|end| end <= known.len) && (known.is_written || !is_stored)
                })
        })
    }

    /// Carries out a one-sided operation.
    fn operate(&mut self, remote: &Remote, payload: &Payload) -> Status {
        let len = payload.len();
        match remote.kind {
            RemoteKind::Write | RemoteKind::Read if len == 0 => Status::Success,
            RemoteKind::Write => self.reach(remote, len, FI_REMOTE_WRITE, |memory| {
                payload.copy_to(memory);
            }),
            RemoteKind::Read => self.reach(remote, len, FI_REMOTE_READ, |memory| {
                payload.store(memory);
            }),
            RemoteKind::FetchAdd { add } => self.update(remote, payload, Op::Sum, add, &[]),
            RemoteKind::CompareSwap { compare, swap } => {
                self.update(remote, payload, Op::Cswap, swap, &compare.to_ne_bytes())
            }
        }
    }

    /// Accesses a peer's memory.
    fn reach(
        &mut self,
        remote: &Remote,
        len: usize,
        access: u64,
        visit: impl FnOnce(&Iov<'_>),
    ) -> Status {
        let (key, address) = (remote.key.into(), remote.address);
        let found = (self.accessor).resolve(key, address, len as u64, access, Job::NONE);
        let held = found.ok().and_then(|grant| self.accessor.hold(&grant));
        match held.as_ref().map(Held::memory) {
            Some(memory) => {
                visit(&memory);
                Status::Success
            }
            None => Status::RemoteAccess,
        }
    }

    /// Changes 8 bytes of a peer's memory, and stores the old value.
    fn update(
        &mut self,
        remote: &Remote,
        payload: &Payload,
        op: Op,
        operand: u64,
        compare: &[u8],
    ) -> Status {
        let mut old = [0; size_of::<u64>()];
        let mut outcome = Ok(());
        let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        let reached = self.reach(remote, old.len(), access, |memory| {
            let operand = operand.to_ne_bytes();
            outcome = apply(op, Datatype::Uint64, memory, &operand, compare, &mut old);
        });
        match outcome {
            Ok(()) if reached == Status::Success => {
                payload.store_bytes(&old);
                Status::Success
            }
            _ => Status::RemoteAccess,
        }
    }
}
