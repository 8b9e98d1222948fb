//! An application on top of an endpoint, which knows what it has sent and checks what comes.

use std::collections::{HashMap, HashSet};

use prov_base::errno::Errno;
use prov_rxd::protocol::{
    Admission, AtomicArrival, Datagram, Failure, Form, Host, MessageArrival, Name, Obstacle,
    Payload, PeerId, Request, WriteArrival,
};
use prov_util::request::{RemoteIov, RemotePiece};

use crate::random::{Random, fill, is_content};

/// The key with which memory may be accessed.
pub const KEY: u64 = 7;
/// A key that is refused.
pub const WRONG_KEY: u64 = 13;
/// Set in the content of what is read.
const READ: u64 = 1 << 63;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Message,
    Write,
    Read,
    Add,
    FetchAdd,
}

/// An operation that is not done. Its number is that of its content: node, incarnation and count.
pub struct Op {
    pub peer: PeerId,
    pub kind: Kind,
    pub len: usize,
    pub is_wrong: bool,
    pub got: usize,
}

/// What has become of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub id: u64,
    pub kind: Kind,
    pub result: Result<(), Failure>,
}

/// A message or a write that is arriving.
#[derive(Clone, Copy)]
struct Arriving {
    id: u64,
    len: usize,
    got: usize,
    in_order: usize,
    is_message: bool,
}

/// Parts of a million of what devices do not copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failing {
    /// Packets of what peers read.
    pub reads: u64,
    /// Peers' writes of more than one packet, when all of it is here.
    pub writes: u64,
    /// Packets of messages that are sent.
    pub messages: u64,
}

/// A datagram that leaves.
pub struct Leaving {
    pub to: u32,
    /// Bytes of the header.
    pub header: usize,
    pub bytes: Vec<u8>,
}

pub struct SimHost {
    pub random: Random,
    pub outbox: Vec<Leaving>,
    pub room: usize,
    pub ops: HashMap<u64, Op>,
    pub done: Vec<Outcome>,
    arriving: HashMap<PeerId, Arriving>,
    /// What was delivered: in order for each peer.
    pub delivered: Vec<u64>,
    /// The peers that are held back.
    pub held: Vec<PeerId>,
    /// Parts of a million of messages that are held back at first.
    pub holds: u64,
    pub failing: Failing,
    obstacle: Obstacle,
    /// The message that is presented again.
    resumed: HashMap<PeerId, u64>,
    pub responses: usize,
    /// Whether places are known for parts before their turn.
    pub takes_early: bool,
    pub counter: u64,
    pub peers: HashMap<PeerId, u32>,
    /// Number of strangers' paths in use.
    pub paths: usize,
    /// The nodes that the application knows, though they come by themselves.
    pub expected: HashSet<u32>,
    /// Number of nodes of a host.
    pub per_host: u32,
    /// Whether the numbers of messages begin with the node that sends them.
    pub knows_sources: bool,
    pub strangers_gone: usize,
    /// Peers that are awaited and have not been given up.
    pub awaited: HashSet<PeerId>,
}

impl SimHost {
    pub fn new(random: Random) -> Self {
        SimHost {
            random,
            outbox: Vec::new(),
            room: usize::MAX,
            ops: HashMap::new(),
            done: Vec::new(),
            arriving: HashMap::new(),
            delivered: Vec::new(),
            held: Vec::new(),
            holds: 0,
            failing: Failing::default(),
            obstacle: Obstacle::NoRoom,
            resumed: HashMap::new(),
            responses: 0,
            takes_early: true,
            counter: 0,
            peers: HashMap::new(),
            paths: 0,
            expected: HashSet::new(),
            per_host: 1,
            knows_sources: false,
            strangers_gone: 0,
            awaited: HashSet::new(),
        }
    }

    fn number_of(message: &MessageArrival, payload: &[u8]) -> u64 {
        match (message.tag, message.data, payload.first_chunk::<8>()) {
            (Some(id), None, _) | (None, Some(id), _) => id,
            (Some(tag), Some(data), _) => {
                assert_eq!(tag, !data);
                data
            }
            (None, None, Some(id)) => u64::from_le_bytes(*id),
            (None, None, None) => panic!("a short message without a number"),
        }
    }

    fn check(arriving: &Arriving, offset: usize, bytes: &[u8]) {
        // A message may begin with its number.
        let (offset, bytes) = match arriving.is_message && offset < 8 {
            true => (8, bytes.get(8 - offset..).unwrap_or_default()),
            false => (offset, bytes),
        };
        assert!(
            is_content(arriving.id, offset, bytes),
            "wrong bytes of {:x}",
            arriving.id
        );
    }
}

/// A name for a node.
pub fn name_of(node: u32) -> Name {
    let mut name = [0; 64];
    name[..4].copy_from_slice(&(node + 1).to_le_bytes());
    name
}

fn node_of(name: &Name) -> Option<u32> {
    let number = u32::from_le_bytes(name[..4].try_into().unwrap());
    number.checked_sub(1)
}

/// Memory of a peer with this content.
pub fn remote_of(id: u64, len: usize, pieces: usize, key: u64) -> RemoteIov {
    let mut remote = RemoteIov::default();
    let mut left = len as u64;
    for piece in 0..pieces {
        let len = match piece + 1 == pieces {
            true => left,
            false => left / 2,
        };
        left -= len;
        let addr = id;
        assert!(remote.push(RemotePiece { addr, len, key }));
    }
    remote
}

/// The request for an operation.
pub fn request_of(op: &Op, id: u64, random: &mut Random) -> Request {
    let key = if op.is_wrong { WRONG_KEY } else { KEY };
    let pieces = match op.len {
        0..4 => 1,
        _ => 1 + random.below(4) as usize,
    };
    let remote = remote_of(id, op.len, pieces, key);
    match op.kind {
        Kind::Message => {
            let (tag, data) = match random.below(4) {
                0 if op.len >= 8 => (None, None),
                1 => (None, Some(id)),
                2 => (Some(!id), Some(id)),
                _ => (Some(id), None),
            };
            let len = op.len;
            Request::Message { tag, data, len }
        }
        Kind::Write => Request::Write { data: None, remote },
        Kind::Read => Request::Read { remote },
        Kind::Add | Kind::FetchAdd => Request::Atomic {
            form: match op.kind {
                Kind::Add => Form::Base,
                _ => Form::Fetch,
            },
            op: 2,
            datatype: 7,
            data: None,
            len: 8,
            remote: remote_of(id, 8, 1, key),
        },
    }
}

impl Host for SimHost {
    type Op = u64;
    type Response = u64;
    type Path = u32;

    fn transmit(&mut self, datagram: &Datagram<'_, u32, u64, u64>) -> bool {
        if self.outbox.len() >= self.room {
            return false;
        }
        let fails = match datagram.payload {
            Payload::None => 0,
            Payload::Op { op, .. } if self.ops[&op].kind == Kind::Message => self.failing.messages,
            Payload::Op { .. } => 0,
            Payload::Response { .. } => self.failing.reads,
        };
        if self.random.happens(fails) {
            self.obstacle = Obstacle::Unreadable;
            return false;
        }
        let mut bytes = datagram.header.to_vec();
        let front = bytes.len();
        match datagram.payload {
            Payload::None => {}
            Payload::Op { op, offset, len } => {
                let known = self.ops.get(&op).expect("an operation that is not done");
                assert!(offset + len <= known.len.max(8));
                bytes.resize(front + len, 0);
                let payload = &mut bytes[front..];
                fill(op, offset, payload);
                if known.kind == Kind::Message && offset < 8 {
                    let number = op.to_le_bytes();
                    let len = len.min(8);
                    payload[..len].copy_from_slice(&number[..len]);
                }
                if matches!(known.kind, Kind::Add | Kind::FetchAdd) {
                    payload.copy_from_slice(&op.to_le_bytes());
                }
            }
            Payload::Response {
                response,
                offset,
                len,
            } => {
                bytes.resize(front + len, 0);
                fill(response | READ, offset, &mut bytes[front..]);
            }
        }
        assert!(bytes.len() <= 1472);
        self.outbox.push(Leaving {
            to: datagram.path,
            header: front,
            bytes,
        });
        true
    }

    fn obstacle(&mut self) -> Obstacle {
        std::mem::take(&mut self.obstacle)
    }

    fn resolve(&mut self, name: &Name) -> Option<u32> {
        let node = node_of(name)?;
        self.paths += 1;
        Some(node)
    }

    fn released(&mut self, _: u32) {
        self.paths -= 1;
    }

    fn is_expected(&mut self, name: &Name) -> bool {
        node_of(name).is_some_and(|node| self.expected.contains(&node))
    }

    fn host_of(&self, name: &Name) -> Name {
        node_of(name).map_or(*name, |node| name_of(node - node % self.per_host))
    }

    fn appeared(&mut self, peer: PeerId, name: &Name, path: u32) {
        assert_eq!(node_of(name), Some(path));
        assert!(self.peers.insert(peer, path).is_none());
    }

    fn disappeared(&mut self, peer: PeerId, path: u32) {
        self.strangers_gone += 1;
        self.paths -= 1;
        assert_eq!(self.peers.remove(&peer), Some(path));
    }

    fn message(&mut self, peer: PeerId, message: &MessageArrival, payload: &[u8]) -> Admission {
        let id = Self::number_of(message, payload);
        if self.knows_sources {
            assert_eq!(u64::from(self.peers[&peer]), id >> 48, "from another peer");
        }
        match self.resumed.remove(&peer) {
            Some(resumed) => assert_eq!(resumed, id, "another message than the one that was held"),
            None if self.random.happens(self.holds) => {
                self.held.push(peer);
                self.resumed.insert(peer, id);
                return Admission::Held;
            }
            None => {}
        }
        let arriving = Arriving {
            id,
            len: message.len,
            got: payload.len(),
            in_order: payload.len(),
            is_message: true,
        };
        Self::check(&arriving, 0, payload);
        match payload.len() == message.len {
            true => self.delivered.push(id),
            false => assert!(self.arriving.insert(peer, arriving).is_none()),
        }
        Admission::Taken
    }

    fn write(&mut self, peer: PeerId, write: &WriteArrival, payload: &[u8]) -> Result<(), Errno> {
        let remote = write.remote;
        let piece = remote.pieces()[0];
        if piece.key != KEY {
            return Err(Errno::EACCES);
        }
        let arriving = Arriving {
            id: piece.addr,
            len: remote.len() as usize,
            got: payload.len(),
            in_order: payload.len(),
            is_message: false,
        };
        Self::check(&arriving, 0, payload);
        match payload.len() == arriving.len {
            true => self.delivered.push(arriving.id),
            false => assert!(self.arriving.insert(peer, arriving).is_none()),
        }
        Ok(())
    }

    fn segment(&mut self, peer: PeerId, offset: usize, bytes: &[u8], in_order: bool) -> bool {
        if !in_order && !self.takes_early {
            return false;
        }
        let arriving = self.arriving.get_mut(&peer).expect("a part of nothing");
        Self::check(arriving, offset, bytes);
        arriving.got += bytes.len();
        if in_order {
            assert!(offset >= arriving.in_order);
            arriving.in_order = offset + bytes.len();
        }
        true
    }

    fn finished(&mut self, peer: PeerId) -> Result<(), Errno> {
        let arriving = self.arriving.remove(&peer).expect("the end of nothing");
        assert_eq!(arriving.got, arriving.len);
        if !arriving.is_message && self.random.happens(self.failing.writes) {
            return Err(Errno::EIO);
        }
        self.delivered.push(arriving.id);
        Ok(())
    }

    fn interrupted(&mut self, peer: PeerId, _: Failure) {
        let was_held = self.resumed.remove(&peer).is_some();
        self.held.retain(|held| *held != peer);
        let was_arriving = self.arriving.remove(&peer).is_some();
        let was_awaited = self.awaited.remove(&peer);
        assert!(was_held || was_arriving || was_awaited);
    }

    fn read(&mut self, _: PeerId, remote: &RemoteIov) -> Result<u64, Errno> {
        let piece = remote.pieces()[0];
        if piece.key != KEY {
            return Err(Errno::EACCES);
        }
        self.responses += 1;
        Ok(piece.addr)
    }

    fn atomic(&mut self, _: PeerId, atomic: &AtomicArrival<'_>) -> Result<Option<u64>, Errno> {
        let piece = atomic.remote.pieces()[0];
        if piece.key != KEY {
            return Err(Errno::EACCES);
        }
        let id = u64::from_le_bytes(atomic.operands.try_into().unwrap());
        assert_eq!(id, piece.addr);
        self.delivered.push(id);
        self.counter += 1;
        if atomic.form == Form::Base {
            return Ok(None);
        }
        self.responses += 1;
        Ok(Some(id))
    }

    fn responded(&mut self, _: PeerId, _: u64, _: bool) {
        self.responses -= 1;
    }

    fn result(&mut self, op: u64, offset: usize, bytes: &[u8]) {
        let known = self.ops.get_mut(&op).expect("a result of nothing");
        assert!(matches!(known.kind, Kind::Read | Kind::FetchAdd));
        assert!(is_content(op | READ, offset, bytes));
        known.got += bytes.len();
    }

    fn done(&mut self, op: u64, outcome: Result<(), Failure>) {
        let known = self.ops.remove(&op).expect("an operation is done once");
        if outcome.is_ok() && matches!(known.kind, Kind::Read | Kind::FetchAdd) {
            assert_eq!(known.got, known.len);
        }
        if known.is_wrong {
            assert!(outcome.is_err(), "{:?} with a wrong key", known.kind);
        }
        self.done.push(Outcome {
            id: op,
            kind: known.kind,
            result: outcome,
        });
    }
}
