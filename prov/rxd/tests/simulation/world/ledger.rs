//! What was sent, and what each application was told of it.

use std::collections::{HashMap, HashSet};

use prov_base::errno::Errno;
use prov_rxd::protocol::{Failure, PeerId};

use super::{Load, World};
use crate::host::{Kind, Outcome};

/// What a sender knows of what it has sent.
#[derive(Default)]
pub struct Ledger {
    /// Operations by number, and whether they have succeeded.
    pub sent: HashMap<u64, Option<bool>>,
    /// How often each has been delivered or performed.
    delivered: HashSet<u64>,
    /// The last one that arrived, for each sender incarnation and receiver.
    last: HashMap<(u64, u32), u64>,
    pub not_copied: usize,
}

impl World {
    /// Compares what a node was told with what is known.
    pub(super) fn note(&mut self, number: u32) {
        let node = &mut self.nodes[number as usize];
        let ledger = &mut self.ledger;
        node.received += node.host.delivered.len() as u64;
        for id in node.host.delivered.drain(..) {
            assert!(ledger.sent.contains_key(&id), "{id:x} was never sent");
            assert!(ledger.delivered.insert(id), "{id:x} came twice");
            let last = ledger.last.entry((id >> 32, number)).or_insert(0);
            assert!(*last < id, "{id:x} came after {last:x}");
            *last = id;
        }
        for Outcome { id, kind, result } in node.host.done.drain(..) {
            let sent = ledger.sent.insert(id, Some(result.is_ok()));
            assert_eq!(sent, Some(None), "{id:x} is done twice");
            match result {
                Ok(()) if kind != Kind::Read => {
                    assert!(ledger.delivered.contains(&id), "{id:x} has not arrived");
                }
                Ok(()) => {}
                Err(Failure::Refused(error)) => {
                    assert_ne!(kind, Kind::Message);
                    ledger.not_copied += usize::from(error == Errno::EIO);
                }
                Err(Failure::Restarted) if matches!(self.plan.load, Load::UntilClosed(_)) => {}
                // The connection ends with a message of which a part was sent.
                Err(Failure::Unreadable | Failure::Abandoned | Failure::Restarted)
                    if self.plan.failing.messages != 0 => {}
                Err(failure) => assert!(
                    self.plan.restarts + self.plan.partitions != 0,
                    "{id:x} has failed: {failure:?}"
                ),
            }
        }
    }

    /// What is true in the end.
    pub(super) fn check(&mut self) -> u64 {
        for (id, outcome) in &self.ledger.sent {
            assert!(outcome.is_some(), "nobody knows of {id:x}");
        }
        for node in &mut self.nodes {
            // Once a peer is silent for good, what it has read is not needed any more either.
            let peers: Vec<PeerId> = node.host.peers.keys().copied().collect();
            for peer in peers {
                node.endpoint.abandon(self.now, peer, &mut node.host);
            }
            assert_eq!(node.endpoint.unfinished(), 0);
            assert_eq!(node.host.responses, 0);
        }
        self.ledger.sent.len() as u64
    }
}
