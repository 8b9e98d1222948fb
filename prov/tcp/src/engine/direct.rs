//! Large reads and writes between two processes of one host: who is to have the
//! bytes copies them from the memory of who has them. What goes through a
//! socket is copied twice.
//!
//! The system decides who may read whose memory (ptrace(2), "Ptrace access mode
//! checking"), and this library only reads that of its own user. First the two
//! get acquainted: each says which process it is and which number its end of
//! the connection has there, and looks whether the other does hold that end, so
//! that nobody is made to read from a third; then each tells the other where a
//! random number stands, which is read along with every copy.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};

use prov_util::mr::Grant;
use prov_util::process_memory::{OtherIov, OtherProcess, Token};
use prov_util::request::RemoteAccess;

use super::Core;
use super::arrival::Step;
use super::closing::Fault;
use super::connection::Named;
use super::incoming::{Ack, Collecting, Placing, Then};
use super::keys::ConnKey;
use super::op::Op;
use super::place::Place;
use super::posting::Post;
use super::progress::BYTES_PER_TURN;
use super::request::Bytes;
use super::{far_end, socket};
use crate::wire::WireError;
use crate::wire::direct::{Acquaintance, decode, encode};
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header, RmaList};
use fabric_abi::{FI_REMOTE_WRITE, FI_RMA};

/// How well two processes know each other.
#[derive(Default)]
pub struct Neighbour {
    /// Whether this one has introduced itself, or had no reason to.
    is_introduced: bool,
    /// Whether the peer has introduced itself.
    is_met: bool,
    /// The peer's process, where that is certain.
    pid: Option<u32>,
    /// Whether the peer has shown its token.
    is_tried: bool,
    /// The peer's memory, where it can be read.
    memory: Option<OtherProcess>,
    /// Whether the peer can read the memory of this process.
    reads_ours: bool,
    /// Large writes since the peer's last one, if it has made one.
    one_way: Option<u32>,
    /// What is being copied from the peer's memory, in the order in which it
    /// came.
    copies: VecDeque<Copy>,
    /// The header of a message that may not overtake those. Nothing behind it
    /// is read until then.
    pub waiting: Option<Header>,
}

/// Large writes without one by the peer after which they go through the socket
/// again: two processes with nothing else to do get them through it faster, as
/// they share the work.
const MUTUAL: u32 = 256;

/// A transfer on its way to its place.
struct Copy {
    placing: Placing,
    /// Where it is in the peer's memory.
    from: OtherIov,
}

/// Bytes after which no other copy is begun in this turn: meanwhile, the peer
/// may wait for an answer.
const ENOUGH: usize = 128 << 10;
/// Copies that may wait before nothing more is read.
const COPIES_LIMIT: usize = 1024;

impl Neighbour {
    /// Whether something is being copied from the peer's memory.
    #[inline]
    pub fn is_copying(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Whether a message has to wait until what came before it is copied.
    pub fn must_wait(&self, header: &Header) -> bool {
        if !self.is_copying() {
            return false;
        }
        match header.op {
            // Reads are done in order.
            header::Op::ReadResponse => true,
            header::Op::DirectRead | header::Op::DirectWrite => self.copies.len() >= COPIES_LIMIT,
            header::Op::Msg if header.is_ack() => false,
            header::Op::Acquaint
            | header::Op::AtomicResponse
            | header::Op::Cts
            | header::Op::NamedAck
            | header::Op::Throttle
            | header::Op::WideCts => false,
            // Nothing that the peer does overtakes what it wrote before.
            header::Op::AtomicRequest
            | header::Op::Data
            | header::Op::Msg
            | header::Op::ReadRequest
            | header::Op::Tagged
            | header::Op::TaggedRts
            | header::Op::WideData
            | header::Op::WideRts
            | header::Op::Write => self.copies.iter().any(Copy::is_write),
        }
    }

    /// Counts a large write by the peer.
    pub fn written(&mut self) {
        self.one_way = Some(0);
    }

    /// Counts a large write by this process; whether the peer has large writes
    /// under way, too.
    fn is_mutual(&mut self) -> bool {
        let count = self.one_way.map(|count| count.saturating_add(1));
        self.one_way = count;
        count.is_some_and(|count| count <= MUTUAL)
    }

    /// Operations that will not be done any more.
    pub fn abandon(&mut self) -> impl Iterator<Item = Op> {
        self.copies
            .drain(..)
            .filter_map(|copy| match copy.placing.then {
                Then::Read(op) => Some(op),
                Then::Receive(_) | Then::RemoteWrite { .. } => None,
            })
    }
}

impl Copy {
    fn is_write(&self) -> bool {
        matches!(self.placing.then, Then::RemoteWrite { .. })
    }
}

impl Core {
    /// Whether the peer can read the memory of this process. To find out, the
    /// first call begins the acquaintance.
    #[inline(never)]
    fn reads_ours(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get(key) else {
            return false;
        };
        if !conn.neighbour.is_introduced {
            self.introduce(key);
            return false;
        }
        conn.neighbour.reads_ours
    }

    /// Tells a peer of this host which process this is.
    fn introduce(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut conn.neighbour.is_introduced, true)
            || !conn.features.has(Features::DIRECT.or(Features::NAMED_ACKS))
            || !socket::is_within_namespace(conn.socket.as_fd())
        {
            return;
        }
        let number = conn.socket.as_raw_fd().unsigned_abs();
        self.acquaint(
            key,
            Acquaintance::Introduction,
            u64::from(std::process::id()),
            u64::from(number),
        );
    }

    fn acquaint(&mut self, key: ConnKey, what: Acquaintance, id: u64, word: u64) {
        let mut header = Header::new(header::Op::Acquaint);
        header.op_data = what.code();
        header.id = id;
        header.word = word;
        self.post_control(key, header);
    }

    /// The peer tells something about itself.
    pub(super) fn acquainted(&mut self, key: ConnKey, header: &Header) -> Step {
        let out_of_turn = || Fault::Protocol(WireError::Field("acquaintance"));
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        match Acquaintance::from_code(header.op_data).ok_or_else(out_of_turn)? {
            Acquaintance::Introduction => {
                if std::mem::replace(&mut conn.neighbour.is_met, true) {
                    return Err(out_of_turn());
                }
                self.introduce(key);
                self.met(key, header.id, header.word);
            }
            Acquaintance::Token => {
                if std::mem::replace(&mut conn.neighbour.is_tried, true) {
                    return Err(out_of_turn());
                }
                let token = Token {
                    addr: header.id,
                    value: header.word,
                };
                let Some(pid) = conn.neighbour.pid else {
                    return Ok(());
                };
                match OtherProcess::find(pid, token) {
                    Ok(memory) => {
                        conn.neighbour.memory = Some(memory);
                        self.acquaint(key, Acquaintance::Ready, 0, 0);
                    }
                    Err(error) => log::debug!("cannot read the memory of process {pid}: {error}"),
                }
            }
            Acquaintance::Ready => {
                // It cannot read what it does not know the place of.
                if conn.neighbour.pid.is_none() {
                    return Err(out_of_turn());
                }
                conn.neighbour.reads_ours = true;
            }
        }
        Ok(())
    }

    /// The peer says that it is process `pid`, which has its end of the
    /// connection as number `number`. If that is so, it may know where to find
    /// this process's token.
    fn met(&mut self, key: ConnKey, pid: u64, number: u64) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let process = far_end::process(conn.socket.as_fd(), pid, number);
        let token = match process.and_then(|pid| Ok((pid, Token::own()?))) {
            Ok((pid, token)) => {
                conn.neighbour.pid = Some(pid);
                token
            }
            Err(error) => {
                log::debug!(
                    "{} is not known to be process {pid} of this host and user: {error}",
                    conn.peer_text()
                );
                return;
            }
        };
        self.acquaint(key, Acquaintance::Token, token.addr, token.value);
    }

    /// Writes: tells the peer where the bytes are. `false` if that is not
    /// possible.
    pub(super) fn write_directly(
        &mut self,
        key: ConnKey,
        access: &RemoteAccess,
        remote: &RmaList,
        op: Op,
    ) -> bool {
        if access.is_inject() || access.local.len() < self.params.local_write_size {
            return false;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        if !conn.neighbour.is_mutual() || !self.reads_ours(key) {
            return false;
        }
        let mut from = OtherIov::default();
        if !from.push_own(&access.local) || !from.can_be_copied() {
            return false;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        let mut header = Header::new(header::Op::DirectWrite);
        header.rma_count = remote.len() as u8;
        header.flags = header::DELIVERY_COMPLETE | header::NAMED;
        if let Some(data) = access.immediate() {
            header.flags |= header::REMOTE_CQ_DATA;
            header.data = data;
        }
        header.id = conn.name_op(Named::Ack(op));
        if let Some(ep) = self.eps.get_mut(op.ep) {
            ep.outstanding += 1;
        }
        self.post_list(key, header, remote, &from);
        true
    }

    /// Answers a read: tells the peer where the bytes are. `false` if that is
    /// not possible.
    pub(super) fn offer(&mut self, key: ConnKey, grants: &[Grant], len: usize) -> bool {
        if len < self.params.local_read_size || !self.reads_ours(key) {
            return false;
        }
        let mut from = OtherIov::default();
        let mut is_whole = true;
        for grant in grants.iter().filter(|grant| !grant.is_empty()) {
            is_whole &= grant.with(|memory| from.push_own(memory)) == Some(true);
        }
        let is_certain = grants.iter().all(Grant::can_be_copied);
        let is_whole = is_whole && (is_certain || from.can_be_copied());
        if is_whole {
            grants.iter().for_each(Grant::complete);
            self.post_list(
                key,
                Header::new(header::Op::DirectRead),
                &RmaList::EMPTY,
                &from,
            );
        }
        is_whole
    }

    fn post_list(&mut self, key: ConnKey, mut header: Header, remote: &RmaList, list: &OtherIov) {
        let list = encode(list);
        header.payload = list.len();
        self.post(
            key,
            Post {
                header,
                rma: remote,
                payload: Bytes::Own(&list),
                copy: true,
                op: None,
            },
        );
    }

    /// The peer says where the bytes are that the oldest read asked for.
    pub(super) fn direct_read(&mut self, key: ConnKey, message: &Collecting) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let len = conn.reads.front().map_or(0, |read| read.memory.len());
        let from = decode(&message.bytes, len as u64)?;
        let placing = conn.oldest_read()?;
        self.copy_later(key, Copy { placing, from })
    }

    /// A peer says where the bytes are for our memory.
    pub(super) fn direct_write(&mut self, key: ConnKey, message: &Collecting) -> Step {
        let len = message.rma.total().unwrap_or(u64::MAX);
        let from = decode(&message.bytes, len)?;
        let grants = self.registered(key, &message.rma, FI_RMA, FI_REMOTE_WRITE)?;
        if let Some(conn) = self.conns.get_mut(key) {
            conn.neighbour.written();
        }
        let header = &message.header;
        let placing = Placing {
            place: Place::Registered(grants),
            done: 0,
            then: Then::RemoteWrite {
                data: header.has_data().then_some(header.data),
                len: from.len() as usize,
                ack: Ack::Named(header.id),
            },
        };
        self.copy_later(key, Copy { placing, from })
    }

    fn copy_later(&mut self, key: ConnKey, copy: Copy) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if conn.neighbour.memory.is_none() {
            return Err(Fault::Protocol(WireError::Field("acquaintance")));
        }
        conn.neighbour.copies.push_back(copy);
        self.read_later(key);
        Ok(())
    }

    /// Goes on copying from the peer's memory for one turn.
    pub(super) fn copy_on(&mut self, key: ConnKey) {
        self.idle_calls = 0;
        let mut copied = 0;
        let outcome = loop {
            match self.copy_some(key) {
                Ok(Some(more)) => copied += more,
                Ok(None) => break self.go_on_behind_copies(key),
                Err(fault) => break Err(fault),
            }
            if copied >= ENOUGH {
                break self.go_on_behind_copies(key);
            }
        };
        match outcome {
            Ok(()) => self.read_later(key),
            Err(fault) => self.break_with(key, fault),
        }
    }

    /// Copies bytes for the oldest transfer that waits for some; how many,
    /// `None` if there is no such transfer.
    fn copy_some(&mut self, key: ConnKey) -> Result<Option<usize>, Fault> {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let neighbour = &mut conn.neighbour;
        let (Some(copy), Some(memory)) = (neighbour.copies.front_mut(), neighbour.memory) else {
            return Ok(None);
        };
        let Copy { placing, from } = copy;
        let done = placing.done;
        let mut outcome = Ok(());
        let copied = placing.place.part(done, BYTES_PER_TURN, |to| {
            outcome = memory.copy(&from.slice(done as u64, to.len() as u64), to);
        });
        if let Err(error) = outcome {
            log::warn!(
                "cannot copy from the memory of {}: {error}",
                conn.peer_text()
            );
            return Err(Fault::Io(error));
        }
        placing.done += copied;
        if (placing.done as u64) >= from.len()
            && let Some(copy) = neighbour.copies.pop_front()
        {
            self.placed(key, copy.placing)?;
        }
        Ok(Some(copied))
    }

    /// Goes on with the stream where it had to wait for copies.
    fn go_on_behind_copies(&mut self, key: ConnKey) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let waiting = conn.neighbour.waiting.take();
        let Some(header) = waiting else {
            return Ok(());
        };
        if conn.neighbour.must_wait(&header) {
            conn.neighbour.waiting = waiting;
            return Ok(());
        }
        let backlog = std::mem::take(&mut conn.backlog);
        let mut bytes = &backlog[..];
        self.begin(key, &header, &mut bytes)?;
        self.take_in(key, bytes);
        Ok(())
    }
}
