//! A peer that behaves as the C library's: it drops what does not come in order, acknowledges only now
//! and then, repeats everything by its timer, and leaves bytes undefined.

use std::collections::VecDeque;

use prov_rxd::protocol::Time;

use crate::network::MS;
use crate::random::{fill, is_content};

const MTU: usize = 1472;
const SEGMENT: usize = MTU - 32;
/// What it leaves undefined.
const GARBAGE: u8 = 0xa5;
/// Its number of the other side.
const NUMBER: u32 = 1;

struct Inbound {
    id: u64,
    len: usize,
    got: usize,
    first: usize,
    parts: u64,
    next: u64,
}

/// A read that waits for its result.
struct Read {
    id: u64,
    len: usize,
    got: usize,
}

enum Work {
    Message { id: u64, len: usize },
    ReadRequest { id: u64, len: usize },
    Result { id: u64, len: usize, tx_id: u32 },
}

pub struct CPeer {
    pub name: [u8; 64],
    pub outbox: Vec<Vec<u8>>,
    /// Messages and results of reads that have come, in order.
    pub delivered: Vec<u64>,
    peer: Option<u64>,
    rx_seq: u64,
    tx_seq: u64,
    window: usize,
    last_ack: u64,
    unacked: VecDeque<(u64, Vec<u8>, Time)>,
    retries: u32,
    work: VecDeque<Work>,
    /// The packets of the first work.
    packets: VecDeque<Vec<u8>>,
    inbound: Option<Inbound>,
    reads: Vec<Read>,
    max_unacked: usize,
}

fn base(kind: u8, flags: u16, number: u32, seq: u64) -> Vec<u8> {
    let mut packet = vec![2, kind];
    packet.extend(flags.to_ne_bytes());
    packet.extend(number.to_ne_bytes());
    packet.extend(seq.to_ne_bytes());
    packet
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl CPeer {
    pub fn new(name: [u8; 64]) -> Self {
        CPeer {
            name,
            outbox: Vec::new(),
            delivered: Vec::new(),
            peer: None,
            rx_seq: 0,
            tx_seq: 0,
            window: 128,
            last_ack: 0,
            unacked: VecDeque::new(),
            retries: 0,
            work: VecDeque::new(),
            packets: VecDeque::new(),
            inbound: None,
            reads: Vec::new(),
            max_unacked: 128,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.work.is_empty()
            && self.packets.is_empty()
            && self.unacked.is_empty()
            && self.reads.is_empty()
    }

    pub fn send(&mut self, now: Time, id: u64, len: usize) {
        self.work.push_back(Work::Message { id, len });
        self.connect(now);
    }

    pub fn read(&mut self, now: Time, id: u64, len: usize) {
        self.work.push_back(Work::ReadRequest { id, len });
        self.connect(now);
    }

    fn connect(&mut self, now: Time) {
        if self.peer.is_none() && self.unacked.is_empty() {
            let mut request = vec![2, 9];
            request.extend([GARBAGE; 14]);
            request.extend(u64::from(NUMBER).to_ne_bytes());
            request.extend(self.name);
            self.outbox.push(request.clone());
            self.unacked.push_back((u64::MAX, request, now));
        }
        self.progress(now);
    }

    /// Takes work apart while the window has room.
    fn progress(&mut self, now: Time) {
        let Some(peer) = self.peer else {
            return;
        };
        while self.unacked.len() < self.window {
            if self.packets.is_empty() {
                match self.work.pop_front() {
                    None => return,
                    Some(work) => self.begin(peer as u32, work),
                }
                continue;
            }
            let packet = self.packets.pop_front().unwrap();
            self.outbox.push(packet.clone());
            self.unacked.push_back((u64_at(&packet, 8), packet, now));
        }
    }

    fn begin(&mut self, number: u32, work: Work) {
        let start = self.tx_seq;
        match work {
            Work::Message { id, len } => {
                let room = MTU - 16 - 8;
                let (first, parts) = match len > room {
                    false => (len, 1),
                    true => (room - 24, 1 + (len - (room - 24)).div_ceil(SEGMENT)),
                };
                let flags = 1 << 4 | if parts == 1 { 1 << 5 } else { 0 };
                let mut packet = base(1, flags, number, start);
                packet.extend(id.to_ne_bytes());
                if parts > 1 {
                    packet.extend((len as u64).to_ne_bytes());
                    packet.extend((parts as u64).to_ne_bytes());
                    packet.extend(77u32.to_ne_bytes());
                    packet.extend([0, GARBAGE, GARBAGE, GARBAGE]);
                }
                push_content(&mut packet, id, 0, first);
                self.packets.push_back(packet);
                for part in 1..parts {
                    let mut packet = base(12, 1 << 4, number, start + part as u64);
                    packet.extend(77u32.to_ne_bytes());
                    packet.extend([GARBAGE; 4]);
                    packet.extend((part as u64 - 1).to_ne_bytes());
                    let offset = first + (part - 1) * SEGMENT;
                    push_content(&mut packet, id, offset, SEGMENT.min(len - offset));
                    self.packets.push_back(packet);
                }
                self.tx_seq += parts as u64;
            }
            Work::ReadRequest { id, len } => {
                let mut packet = base(2, 0, number, start);
                packet.extend((len as u64).to_ne_bytes());
                packet.extend((len.div_ceil(SEGMENT) as u64).to_ne_bytes());
                packet.extend((self.reads.len() as u32).to_ne_bytes());
                packet.extend([1, GARBAGE, GARBAGE, GARBAGE]);
                for word in [id, len as u64, crate::host::KEY] {
                    packet.extend(word.to_ne_bytes());
                }
                self.packets.push_back(packet);
                self.reads.push(Read { id, len, got: 0 });
                self.tx_seq += 1;
            }
            Work::Result { id, len, tx_id } => {
                for part in 0..len.div_ceil(SEGMENT) {
                    let mut packet = base(13, 0, number, start + part as u64);
                    packet.extend(tx_id.to_ne_bytes());
                    packet.extend([GARBAGE; 4]);
                    packet.extend((part as u64).to_ne_bytes());
                    let offset = part * SEGMENT;
                    let content = id | 1 << 63;
                    push_content(&mut packet, content, offset, SEGMENT.min(len - offset));
                    self.packets.push_back(packet);
                    self.tx_seq += 1;
                }
            }
        }
    }

    fn ack(&mut self) {
        let Some(peer) = self.peer else {
            return;
        };
        let mut packet = base(11, 0xa5a5, peer as u32, self.rx_seq);
        packet.extend([GARBAGE; 4]);
        packet.extend((self.max_unacked as u32).to_ne_bytes());
        packet.extend([GARBAGE; 8]);
        self.outbox.push(packet);
    }

    pub fn receive(&mut self, now: Time, packet: &[u8]) {
        assert_eq!(packet[0], 2);
        match packet[1] {
            9 => {
                let address = u64_at(packet, 16);
                self.open(now, address);
                let mut answer = vec![2, 10];
                answer.extend([GARBAGE; 14]);
                answer.extend(address.to_ne_bytes());
                answer.extend(u64::from(NUMBER).to_ne_bytes());
                self.outbox.push(answer);
            }
            10 => {
                assert_eq!(u64_at(packet, 16), u64::from(NUMBER));
                self.open(now, u64_at(packet, 24));
            }
            11 => self.acked(now, u64_at(packet, 8), u32_at(packet, 20)),
            kind => {
                assert_eq!(u32_at(packet, 4), NUMBER);
                if self.peer.is_none() {
                    return;
                }
                if u64_at(packet, 8) != self.rx_seq {
                    self.ack();
                    return;
                }
                match kind {
                    12 => self.data(packet),
                    13 => self.result(packet),
                    _ => self.operation(now, kind, packet),
                }
            }
        }
    }

    fn open(&mut self, now: Time, address: u64) {
        self.peer = Some(address);
        if self
            .unacked
            .front()
            .is_some_and(|(_, packet, _)| packet[1] == 9)
        {
            self.unacked.pop_front();
            self.retries = 0;
        }
        self.progress(now);
    }

    fn acked(&mut self, now: Time, seq: u64, window: u32) {
        self.window = window as usize;
        if seq == self.last_ack {
            return;
        }
        self.last_ack = seq;
        while self.unacked.front().is_some_and(|(first, ..)| *first < seq) {
            self.unacked.pop_front();
            self.retries = 0;
        }
        self.progress(now);
    }

    fn operation(&mut self, now: Time, kind: u8, packet: &[u8]) {
        let flags = u16::from_ne_bytes([packet[2], packet[3]]);
        let mut at = 16;
        match kind {
            1 => {
                assert_eq!(flags & (1 << 4 | 1), 1 << 4);
                let id = u64_at(packet, at);
                at += 8;
                let mut extent = None;
                if flags & 1 << 5 == 0 {
                    extent = Some((u64_at(packet, at) as usize, u64_at(packet, at + 8)));
                    at += 24;
                }
                let payload = &packet[at..];
                check(id, 0, payload);
                match extent.filter(|(_, parts)| *parts > 1) {
                    None => self.delivered.push(id),
                    Some((len, parts)) => {
                        assert!(self.inbound.is_none());
                        self.inbound = Some(Inbound {
                            id,
                            len,
                            got: payload.len(),
                            first: payload.len(),
                            parts,
                            next: 0,
                        });
                    }
                }
            }
            2 => {
                let (len, tx_id) = (u64_at(packet, at) as usize, u32_at(packet, at + 16));
                assert_eq!(u64_at(packet, at + 8), len.div_ceil(SEGMENT) as u64);
                assert_eq!(packet[at + 20], 1);
                let id = u64_at(packet, at + 24);
                // It keeps 16 bits of it.
                let tx_id = tx_id & 0xffff;
                self.work.push_back(Work::Result { id, len, tx_id });
            }
            kind => panic!("an operation of type {kind}"),
        }
        self.rx_seq += 1;
        self.ack();
        self.progress(now);
    }

    fn data(&mut self, packet: &[u8]) {
        self.rx_seq += 1;
        let rx_seq = self.rx_seq;
        let inbound = self.inbound.as_mut().expect("the rest of nothing");
        let part = u64_at(packet, 24);
        assert_eq!(part, inbound.next);
        let payload = &packet[32..];
        check(inbound.id, inbound.first + part as usize * SEGMENT, payload);
        inbound.got += payload.len();
        inbound.next += 1;
        if inbound.next + 1 < inbound.parts {
            if rx_seq.is_multiple_of(self.max_unacked as u64) {
                self.ack();
            }
            return;
        }
        assert_eq!(inbound.got, inbound.len);
        let id = inbound.id;
        self.inbound = None;
        self.delivered.push(id);
        self.ack();
    }

    fn result(&mut self, packet: &[u8]) {
        self.rx_seq += 1;
        let place = u32_at(packet, 16) as usize;
        let part = u64_at(packet, 24) as usize;
        let payload = &packet[32..];
        let read = &mut self.reads[place];
        assert_eq!(part * SEGMENT, read.got);
        assert!(is_content(read.id | 1 << 63, read.got, payload));
        read.got += payload.len();
        if read.got < read.len {
            if self.rx_seq.is_multiple_of(self.max_unacked as u64) {
                self.ack();
            }
            return;
        }
        self.delivered.push(read.id);
        if self.reads.iter().all(|read| read.got == read.len) {
            self.reads.clear();
        }
        self.ack();
    }

    /// Repeats what is not acknowledged.
    pub fn tick(&mut self, now: Time) {
        let wait = MS << self.retries.min(12);
        let mut any = false;
        for (_, packet, sent_at) in &mut self.unacked {
            if now < *sent_at + wait.min(4_000 * MS) {
                break;
            }
            *sent_at = now;
            self.outbox.push(packet.clone());
            any = true;
        }
        if any {
            self.retries += 1;
            assert!(self.retries < 50, "it gives up");
        }
    }
}

fn push_content(packet: &mut Vec<u8>, content: u64, offset: usize, len: usize) {
    let begin = packet.len();
    packet.resize(begin + len, 0);
    fill(content, offset, &mut packet[begin..]);
}

/// A message begins with its number, apart from the C peer's own.
fn check(id: u64, offset: usize, payload: &[u8]) {
    let (offset, payload) = match offset < 8 {
        true => (8, payload.get(8 - offset..).unwrap_or_default()),
        false => (offset, payload),
    };
    assert!(is_content(id, offset, payload), "wrong bytes of {id:x}");
}
