//! The properties of rxd's protocol for arbitrary datagrams of a peer and for every order of events.
//! Shared by the fuzz targets and the provider's tests.

use std::collections::HashMap;

use prov_base::errno::Errno;
use prov_rxd::protocol::{
    Admission, AtomicArrival, Config, Datagram, Endpoint, Failure, Form, Host, MessageArrival,
    Name, Payload, PeerId, Request, Time, WriteArrival, seal,
};
use prov_util::request::{RemoteIov, RemotePiece};

const MTU: usize = 512;
const MS: Time = 1_000_000;

/// An application that believes everything and checks that it makes sense.
#[derive(Default)]
struct Checker {
    outbox: Vec<Vec<u8>>,
    room: usize,
    /// Length of the payload, and of the result, of each operation that is not done.
    ops: HashMap<u32, (usize, u64)>,
    done: u32,
    failed: u32,
    /// Length of what is arriving, and whether it is held.
    arriving: HashMap<PeerId, usize>,
    held: HashMap<PeerId, MessageArrival>,
    responses: HashMap<u32, u64>,
    next_response: u32,
    received: u32,
    /// Bits that decide what the application does next.
    whim: u64,
}

impl Checker {
    fn decides(&mut self) -> bool {
        self.whim = self.whim.rotate_left(1) ^ 1;
        self.whim & 2 != 0
    }

    fn respond(&mut self, len: u64) -> u32 {
        self.next_response += 1;
        self.responses.insert(self.next_response, len);
        self.next_response
    }

    fn begins(&mut self, peer: PeerId, len: usize, payload: &[u8]) {
        assert!(payload.len() <= len);
        match payload.len() == len {
            true => self.received += 1,
            false => assert!(self.arriving.insert(peer, len).is_none()),
        }
    }
}

impl Host for Checker {
    type Op = u32;
    type Response = u32;
    type Path = u8;

    fn transmit(&mut self, datagram: &Datagram<'_, u8, u32, u32>) -> bool {
        if self.outbox.len() >= self.room {
            return false;
        }
        let mut bytes = datagram.header.to_vec();
        let (len, all, count) = match datagram.payload {
            Payload::None => (0, 0, 0),
            Payload::Op { op, offset, len } => (len, self.ops[&op].0, offset + len),
            Payload::Response {
                response,
                offset,
                len,
            } => (len, self.responses[&response] as usize, offset + len),
        };
        assert!(count <= all, "bytes behind the end");
        bytes.resize(bytes.len() + len, 7);
        assert!(bytes.len() <= MTU);
        self.outbox.push(bytes);
        true
    }

    fn resolve(&mut self, name: &Name) -> Option<u8> {
        Some(name[0])
    }

    fn appeared(&mut self, _: PeerId, name: &Name, path: u8) {
        assert_eq!(name[0], path);
    }

    fn disappeared(&mut self, peer: PeerId, _: u8) {
        assert!(!self.arriving.contains_key(&peer));
    }

    fn message(&mut self, peer: PeerId, message: &MessageArrival, payload: &[u8]) -> Admission {
        match self.held.remove(&peer) {
            Some(held) => assert_eq!(held, *message),
            None if self.decides() => {
                self.held.insert(peer, *message);
                return Admission::Held;
            }
            None => {}
        }
        self.begins(peer, message.len, payload);
        Admission::Taken
    }

    fn write(&mut self, peer: PeerId, write: &WriteArrival, payload: &[u8]) -> Result<(), Errno> {
        if self.decides() {
            return Err(Errno::EACCES);
        }
        self.begins(peer, write.remote.len() as usize, payload);
        Ok(())
    }

    fn segment(&mut self, peer: PeerId, offset: usize, bytes: &[u8], in_order: bool) -> bool {
        assert!(offset + bytes.len() <= self.arriving[&peer]);
        in_order || self.decides()
    }

    fn finished(&mut self, peer: PeerId) -> Result<(), Errno> {
        assert!(self.arriving.remove(&peer).is_some());
        self.received += 1;
        match self.decides() {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }

    fn interrupted(&mut self, peer: PeerId, _: Failure) {
        let was_held = self.held.remove(&peer).is_some();
        assert!(self.arriving.remove(&peer).is_some() || was_held);
    }

    fn read(&mut self, _: PeerId, remote: &RemoteIov) -> Result<u32, Errno> {
        match self.decides() {
            true => Err(Errno::EACCES),
            false => Ok(self.respond(remote.len())),
        }
    }

    fn atomic(&mut self, _: PeerId, atomic: &AtomicArrival<'_>) -> Result<Option<u32>, Errno> {
        if self.decides() {
            return Err(Errno::EACCES);
        }
        match atomic.form {
            Form::Base => Ok(None),
            Form::Fetch | Form::Compare => Ok(Some(self.respond(atomic.remote.len()))),
        }
    }

    fn responded(&mut self, _: PeerId, response: u32, _: bool) {
        assert!(self.responses.remove(&response).is_some());
    }

    fn result(&mut self, op: u32, offset: usize, bytes: &[u8]) {
        assert!((offset + bytes.len()) as u64 <= self.ops[&op].1);
    }

    fn done(&mut self, op: u32, outcome: Result<(), Failure>) {
        assert!(self.ops.remove(&op).is_some(), "done twice");
        match outcome {
            Ok(()) => self.done += 1,
            Err(Failure::Refused(_)) => self.done += 1,
            Err(_) => self.failed += 1,
        }
    }
}

struct Side {
    endpoint: Endpoint<Checker>,
    host: Checker,
    other: PeerId,
    other_name: Name,
    other_path: u8,
    posted: u32,
}

impl Side {
    fn new(own: u8, other: u8, extended: bool) -> Side {
        let mut endpoint = Endpoint::new(Config {
            name: [own; 64],
            mtu: MTU,
            max_unacked: 16,
            retry: true,
            extended,
            give_up: 2_000 * MS,
            max_strangers: 4,
            max_guests: 2,
            max_buffered: 1 << 16,
            secret: [own.into(), 2],
        });
        let other_name = [other; 64];
        let id = endpoint.peer(&other_name, other).unwrap();
        let host = Checker {
            room: usize::MAX,
            ..Checker::default()
        };
        Side {
            endpoint,
            host,
            other: id,
            other_name,
            other_path: other,
            posted: 0,
        }
    }

    fn post(&mut self, now: Time, what: u8, len: usize) {
        // It may have had to give way, as strangers do.
        let Some(other) = self.endpoint.peer(&self.other_name, self.other_path) else {
            return;
        };
        self.other = other;
        let mut remote = RemoteIov::default();
        for _ in 0..1 + what / 64 {
            let len = (len / 4) as u64;
            remote.push(RemotePiece {
                addr: 1,
                len,
                key: 2,
            });
        }
        let result = remote.len();
        let (op, datatype) = (2, 7);
        let data = (what & 32 != 0).then_some(9);
        let atomic = |form, len| Request::Atomic {
            form,
            op,
            datatype,
            data,
            len,
            remote,
        };
        let (request, payload, result) = match what % 6 {
            0 => {
                let tag = (what & 16 != 0).then_some(3);
                (Request::Message { tag, data, len }, len, 0)
            }
            1 => (Request::Write { data, remote }, result as usize, 0),
            2 => (Request::Read { remote }, 0, result),
            3 => (atomic(Form::Base, result as usize), result as usize, 0),
            4 => (
                atomic(Form::Fetch, result as usize),
                result as usize,
                result,
            ),
            _ => {
                let payload = 2 * result as usize;
                (atomic(Form::Compare, payload), payload, result)
            }
        };
        self.posted += 1;
        let op = self.posted;
        if self.endpoint.submit(now, self.other, op, &request).is_ok() {
            self.host.ops.insert(op, (payload, result));
        }
    }

    /// Passes a datagram to the endpoint while the application makes no calls. Returns whether it was
    /// handled, which the application does not notice.
    fn receive_meanwhile(&mut self, now: Time, datagram: &[u8]) -> bool {
        let before = self.host.received;
        let is_handled = self
            .endpoint
            .receive_meanwhile(now, None, datagram, &mut self.host);
        assert_eq!(self.host.received, before);
        is_handled
    }

    fn resume(&mut self, now: Time) {
        let held: Vec<PeerId> = self.host.held.keys().copied().collect();
        for peer in held {
            self.endpoint.resume(now, peer, &mut self.host);
        }
    }
}

/// Two endpoints with operations under way, one of which gets the datagrams in `bytes`: each with two
/// bytes of length in front. What makes a packet one of the connection is put into it.
pub fn datagrams(bytes: &[u8]) {
    let Some((&first, mut bytes)) = bytes.split_first() else {
        return;
    };
    let mut now = MS;
    let mut sides = [
        Side::new(1, 2, first & 1 != 0),
        Side::new(2, 1, first & 2 != 0),
    ];
    for side in &mut sides {
        for what in 0..6 {
            side.post(now, what, 400 * usize::from(what + 1));
        }
    }
    // The last datagram of the other side to this one.
    let mut pattern = Pattern {
        is_sealed: first & 3 == 3,
        ..Pattern::default()
    };
    for _ in 0..3 {
        exchange(&mut sides, &mut now, &mut pattern);
    }
    let [this, _] = &mut sides;
    this.host.whim = u64::from(first) << 8;
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*head) % 600).min(rest.len());
        let (datagram, rest) = rest.split_at(len);
        bytes = rest;
        let mut datagram = datagram.to_vec();
        if let Some(front) = datagram.get_mut(..16)
            && pattern.number != [0; 4]
        {
            front[0] = 2;
            if front[1] != 9 && front[1] != 10 {
                front[4..8].copy_from_slice(&pattern.number);
                let step = i64::from(i16::from_ne_bytes([front[8], front[9]]));
                let seq = pattern.seq.wrapping_add_signed(step);
                front[8..16].copy_from_slice(&seq.to_ne_bytes());
                if pattern.is_sealed {
                    seal(&mut datagram, seq);
                }
            }
        }
        if head[1] & 0x80 == 0 || !this.receive_meanwhile(now, &datagram) {
            this.endpoint.receive(now, None, &datagram, &mut this.host);
        }
        this.endpoint.transmit(now, &mut this.host);
        this.host.outbox.clear();
        this.resume(now);
        now += MS;
    }
    // Whatever the peer has said: when it is silent, everything ends.
    for _ in 0..100 {
        now += 1_000 * MS;
        this.endpoint.transmit(now, &mut this.host);
        this.host.outbox.clear();
        this.resume(now);
    }
    assert!(this.host.ops.is_empty(), "operations that never end");
}

/// What makes a packet one of the connection.
#[derive(Default)]
struct Pattern {
    /// Whether sequence numbers have only half of their bits.
    is_sealed: bool,
    /// The number of the first packet then.
    first: u64,
    number: [u8; 4],
    seq: u64,
}

impl Pattern {
    /// Takes in a datagram.
    fn follow(&mut self, datagram: &[u8]) {
        let at = |place| {
            datagram
                .get(place..place + 8)
                .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        };
        match datagram[1] {
            9 if self.is_sealed => self.first = at(88 + 16).unwrap_or(0),
            10 if self.is_sealed => self.first = at(32 + 16).unwrap_or(0),
            9 | 10 => {}
            _ => {
                self.number.copy_from_slice(&datagram[4..8]);
                let seq = at(8).unwrap_or(0);
                let ahead = (seq as u32).wrapping_sub(self.first as u32) as i32;
                self.seq = self.first.wrapping_add_signed(ahead.into());
            }
        }
    }
}

/// All that waits is delivered, both ways.
fn exchange(sides: &mut [Side; 2], now: &mut Time, pattern: &mut Pattern) {
    *now += MS;
    for from in 0..2 {
        let side = &mut sides[from];
        side.endpoint.transmit(*now, &mut side.host);
        let sent = std::mem::take(&mut side.host.outbox);
        let to = &mut sides[1 - from];
        for datagram in sent {
            if from == 1 {
                pattern.follow(&datagram);
            }
            to.endpoint.receive(*now, None, &datagram, &mut to.host);
        }
    }
}

/// Two endpoints and a network between them, which does what the bytes say: every operation ends, and
/// if the network only loses, repeats and reorders, with success.
pub fn events(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut now = MS;
    let mut sides = [
        Side::new(1, 2, first & 1 != 0),
        Side::new(2, 1, first & 2 != 0),
    ];
    let mut wires: [Vec<Vec<u8>>; 2] = Default::default();
    let mut events = bytes.iter().copied();
    while let Some(event) = events.next() {
        let of = usize::from(event & 1);
        let argument = event >> 4;
        match event >> 1 & 7 {
            0 => {
                let (what, len) = (events.next(), events.next());
                let len = usize::from(len.unwrap_or(0)) * usize::from(argument + 1);
                sides[of].post(now, what.unwrap_or(0), len);
            }
            1 => sides[of].host.room = wires[of].len() + usize::from(argument),
            2 => now += MS << argument.min(9),
            3 => now += u64::from(argument) * 50_000,
            4 => sides[of].resume(now),
            // A datagram is lost, or comes again.
            5 if argument & 8 != 0 => {
                if let Some(datagram) = wires[of].first().cloned() {
                    wires[of].push(datagram);
                }
            }
            5 => drop(wires[of].pop()),
            // The application of the other side makes no calls.
            7 if argument & 8 != 0 => {
                let to = &mut sides[1 - of];
                wires[of].retain(|datagram| !to.receive_meanwhile(now, datagram));
            }
            _ => {
                for _ in 0..=argument {
                    let wire = &mut wires[of];
                    if wire.is_empty() {
                        break;
                    }
                    // Of a few, any may be the first.
                    let place = usize::from(event >> 7) * (wire.len() - 1).min(2);
                    let datagram = wire.remove(place);
                    let to = &mut sides[1 - of];
                    to.endpoint.receive(now, None, &datagram, &mut to.host);
                }
            }
        }
        for (side, wire) in sides.iter_mut().zip(&mut wires) {
            side.endpoint.transmit(now, &mut side.host);
            wire.append(&mut side.host.outbox);
        }
    }
    // From now on the network is good, and everything ends: what was lost is sent again at the pace of
    // the round trip that was measured before, which may be seconds. Two sides that disagree on their
    // connection notice it within a few seconds, and agree.
    let mut failed = 0;
    for round in 0..60_000 {
        let count: u32 = sides.iter().map(|side| side.host.failed).sum();
        if round <= 10_000 {
            failed = count;
        }
        assert_eq!(count, failed, "operations fail in a good network");
        if sides.iter().all(|side| side.host.ops.is_empty()) {
            break;
        }
        for of in 0..2 {
            sides[of].host.room = usize::MAX;
            sides[of].resume(now);
            sides[of].endpoint.transmit(now, &mut sides[of].host);
            wires[of].append(&mut sides[of].host.outbox);
            for datagram in std::mem::take(&mut wires[of]) {
                let to = &mut sides[1 - of];
                to.endpoint.receive(now, None, &datagram, &mut to.host);
            }
        }
        now += MS;
    }
    for side in &sides {
        let (ops, held) = (&side.host.ops, &side.host.held);
        assert!(
            ops.is_empty(),
            "operations that never end: {ops:?}, extensions {}, held {held:?}",
            first & 3
        );
    }
}
