//! What the application of a node sends.

use super::{Load, OUTSTANDING, World};
use crate::host::{Kind, Op, name_of, request_of};

impl World {
    /// The application of a node submits operations.
    pub(super) fn act(&mut self, number: u32) {
        if let Load::PingPong(completes) = self.plan.load {
            self.answer(number, completes);
            return;
        }
        let burst = match self.plan.load {
            Load::UntilClosed(_) => OUTSTANDING as u64,
            _ => self.random.below(16),
        };
        for _ in 0..burst {
            let node = &self.nodes[number as usize];
            if node.left == 0 || node.host.ops.len() >= OUTSTANDING {
                break;
            }
            if !matches!(self.plan.load, Load::Mixed) {
                let to = match self.plan.load {
                    Load::Bulk => number + self.plan.nodes / 2,
                    _ => 1,
                };
                self.submit(number, to, Kind::Message, self.plan.longest, false);
                self.nodes[number as usize].left -= 1;
                continue;
            }
            let to = self.random.below(u64::from(self.plan.nodes)) as u32;
            let kind = match self.random.below(16) {
                0 => Kind::Read,
                1 => Kind::Write,
                2 => Kind::Add,
                3 => Kind::FetchAdd,
                _ => Kind::Message,
            };
            let len = match (kind, self.random.below(8)) {
                (Kind::Add | Kind::FetchAdd, _) => 8,
                (_, 0) => self.random.below(self.plan.longest as u64) as usize,
                (_, 1) => self.random.below(1_500) as usize,
                (Kind::Read, _) => 1 + self.random.below(64) as usize,
                _ => self.random.below(64) as usize,
            };
            // Without extensions there is no refusal.
            let is_wrong = kind != Kind::Message
                && self.plan.extended
                && len != 0
                && self.random.below(8) == 0;
            self.submit(number, to, kind, len, is_wrong);
            self.nodes[number as usize].left -= 1;
        }
    }

    /// The application of a node sends the next message if it is its turn.
    fn answer(&mut self, number: u32, completes: bool) {
        let node = &mut self.nodes[number as usize];
        let is_due = node.received + 1 > node.count + u64::from(number);
        let is_free = !completes || node.host.ops.is_empty();
        if is_due && is_free && node.left != 0 {
            node.left -= 1;
            let len = self.plan.longest;
            self.submit(number, 1 - number, Kind::Message, len, false);
        }
    }

    pub(super) fn submit(&mut self, number: u32, to: u32, kind: Kind, len: usize, is_wrong: bool) {
        let node = &mut self.nodes[number as usize];
        let peer = node
            .endpoint
            .peer(&name_of(to), to)
            .expect("room for a peer");
        node.host.peers.insert(peer, to);
        node.count += 1;
        let id = u64::from(number) << 48 | node.incarnation << 32 | node.count;
        let op = Op {
            peer,
            kind,
            len,
            is_wrong,
            got: 0,
        };
        let request = request_of(&op, id, &mut self.random);
        node.host.ops.insert(id, op);
        let taken = node.endpoint.submit(self.now, peer, id, &request);
        assert_eq!(taken, Ok(()));
        self.ledger.sent.insert(id, None);
    }
}
