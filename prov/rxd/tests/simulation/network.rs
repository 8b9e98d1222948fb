//! A network that loses, repeats, delays and reorders datagrams, has a bandwidth, and falls apart.

use std::collections::HashMap;

use prov_rxd::protocol::Time;

use crate::random::Random;

pub const US: Time = 1_000;
pub const MS: Time = 1_000_000;

/// How bad it is. Probabilities are parts of a million.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    /// Datagrams whose header is damaged so that UDP's checksum is still right.
    pub corruption: u64,
    /// How long a datagram is underway, and how long at most one that others overtake is late.
    pub delay: Time,
    pub late: Time,
    /// Nanoseconds for a byte, and the longest queue; 0 for no limit.
    pub per_byte: Time,
    pub queue: Time,
    /// Whether all nodes share one link to those with higher numbers, and one back.
    pub is_shared: bool,
}

impl Faults {
    pub const NONE: Faults = Faults {
        loss: 0,
        duplication: 0,
        reordering: 0,
        corruption: 0,
        delay: 20 * US,
        late: 0,
        per_byte: 0,
        queue: 0,
        is_shared: false,
    };

    /// Some faults. A host that is not `extended` recognises no damaged header.
    pub fn random(random: &mut Random, extended: bool) -> Faults {
        let delay = match random.below(4) {
            0 => 10 * US,
            1 => 100 * US,
            2 => 2 * MS,
            _ => 20 * MS,
        };
        Faults {
            loss: [0, 1_000, 10_000, 50_000, 200_000][random.below(5) as usize],
            duplication: [0, 20_000, 100_000][random.below(3) as usize],
            reordering: [0, 100_000, 300_000][random.below(3) as usize],
            corruption: match extended {
                true => [0, 1_000, 20_000][random.below(3) as usize],
                false => 0,
            },
            delay,
            late: delay * (1 + random.below(4)),
            per_byte: [0, 0, 8, 80][random.below(4) as usize],
            queue: 2 * MS + delay,
            is_shared: false,
        }
    }
}

pub struct Network {
    pub faults: Faults,
    /// Until when each link is busy.
    busy: HashMap<(u32, u32), Time>,
    /// The side of each node while the network is divided.
    pub sides: Option<Vec<bool>>,
    pub sent: u64,
}

impl Network {
    pub fn new(faults: Faults) -> Self {
        Network {
            faults,
            busy: HashMap::new(),
            sides: None,
            sent: 0,
        }
    }

    /// A datagram is sent: calls `arrives` with the time of each arrival, and whether the header is
    /// damaged ([`corrupt`]).
    pub fn send(
        &mut self,
        now: Time,
        random: &mut Random,
        from: u32,
        to: u32,
        len: usize,
        mut arrives: impl FnMut(Time, bool),
    ) {
        self.sent += 1;
        let faults = self.faults;
        if let Some(sides) = &self.sides
            && sides[from as usize] != sides[to as usize]
        {
            return;
        }
        let mut leaves = now;
        if faults.per_byte != 0 {
            let link = match faults.is_shared {
                true => (u32::from(from < to), u32::MAX),
                false => (from, to),
            };
            let busy = self.busy.entry(link).or_insert(0);
            let begin = now.max(*busy);
            if begin - now > faults.queue {
                return;
            }
            leaves = begin + len as u64 * faults.per_byte;
            *busy = leaves;
        }
        let copies = 1 + u64::from(random.happens(faults.duplication));
        for _ in 0..copies {
            if random.happens(faults.loss) {
                continue;
            }
            let mut at = leaves + faults.delay;
            if random.happens(faults.reordering) {
                at += random.below(faults.late.max(1));
            }
            arrives(at, random.happens(faults.corruption));
        }
    }
}

/// Changes bits of a header so that UDP's checksum, the sum of all words of 16 bits, stays the same:
/// of two words, one loses a bit that the other one gains.
pub fn corrupt(random: &mut Random, header: &mut [u8]) {
    let words = header.len() as u64 / 2;
    for _ in 0..1 + random.below(3) {
        for _ in 0..64 {
            let [one, other] = [(); 2].map(|()| 2 * random.below(words) as usize);
            let (byte, bit) = (random.below(2) as usize, 1 << random.below(8));
            if header[one + byte] & bit != 0 && header[other + byte] & bit == 0 {
                header[one + byte] ^= bit;
                header[other + byte] ^= bit;
                break;
            }
        }
    }
}
