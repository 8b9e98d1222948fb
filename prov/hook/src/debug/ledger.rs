//! What the debug hook knows: the objects that are open, and the operations that are outstanding, by
//! their contexts.

use prov_base::bounded;
use prov_base::bounds::{OBJECTS, OPERATIONS};
use std::collections::{HashMap, HashSet, VecDeque};

use fabric_abi::*;

use crate::wrap::{Completion, Kind, Operation};

/// An outstanding operation.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub endpoint: usize,
    pub operation: Operation,
    pub is_receive: bool,
    /// It was posted with FI_COMPLETION.
    pub is_requested: bool,
    /// It is a multi-receive buffer, which has many completions.
    pub stays: bool,
    pub ticket: u64,
}

/// How a completion is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matched {
    /// By an operation of this endpoint.
    Operation,
    /// By an access of a peer to this process's memory.
    Peer,
    Nothing,
}

/// An endpoint with more operations than it was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub outstanding: usize,
    pub size: usize,
}

#[derive(Default)]
struct Endpoint {
    /// Whether it has a completion queue for a direction, and then whether operations have
    /// completions there only on request (FI_SELECTIVE_COMPLETION).
    transmit: Option<bool>,
    receive: Option<bool>,
    sizes: [usize; 2],
    outstanding: [usize; 2],
    /// Excess is reported once.
    is_reported: [bool; 2],
}

#[derive(Default)]
pub(super) struct Ledger {
    objects: HashMap<usize, Kind>,
    endpoints: HashMap<usize, Endpoint>,
    /// By context, the oldest first: a program may give thousands the same one.
    posted: HashMap<usize, VecDeque<Posted>>,
    /// The contexts of operations that endpoints had when they were closed.
    left: HashSet<usize>,
    last_ticket: u64,
    /// There are operations that the ledger has not seen.
    is_in_doubt: bool,
}

impl Ledger {
    /// Enters an object, and the sizes of an endpoint's queues.
    pub fn open(&mut self, object: usize, kind: Kind, sizes: Option<(usize, usize)>) {
        self.objects.insert(object, kind);
        bounded!(self.objects, OBJECTS);
        if kind == Kind::Endpoint {
            let (sent, received) = sizes.unwrap_or_default();
            let endpoint = Endpoint {
                sizes: [sent, received],
                ..Endpoint::default()
            };
            self.endpoints.insert(object, endpoint);
            bounded!(self.endpoints, OBJECTS);
        }
    }

    /// Notes that an endpoint has a completion queue.
    pub fn bind(&mut self, endpoint: usize, other: usize, flags: u64) {
        let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
        let is_queue = self.objects.get(&other) == Some(&Kind::CompletionQueue);
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint)
            && is_queue
        {
            if flags & FI_TRANSMIT != 0 {
                endpoint.transmit = Some(is_selective);
            }
            if flags & FI_RECV != 0 {
                endpoint.receive = Some(is_selective);
            }
        }
    }

    /// Enters an operation, unless it will have no completion. Returns its ticket, or 0.
    pub fn post(&mut self, context: usize, mut posted: Posted) -> u64 {
        let Some(endpoint) = self.endpoints.get_mut(&posted.endpoint) else {
            return 0;
        };
        let selective = match posted.is_receive {
            true => endpoint.receive,
            false => endpoint.transmit,
        };
        match selective {
            // A shared receive context has no queue of its own, but its endpoints have.
            None if !posted.is_receive => return 0,
            Some(true) if !posted.is_requested => return 0,
            _ => {}
        }
        if let Some(outstanding) = endpoint.outstanding.get_mut(usize::from(posted.is_receive)) {
            *outstanding += 1;
        }
        self.last_ticket += 1;
        posted.ticket = self.last_ticket;
        let of_context = self.posted.entry(context).or_default();
        // A completion of an endpoint that has been closed is not told apart from the new one's.
        if self.left.remove(&context) {
            let endpoints = &self.endpoints;
            of_context.retain(|posted| endpoints.contains_key(&posted.endpoint));
        }
        of_context.push_back(posted);
        self.last_ticket
    }

    /// Removes an operation whose call has failed.
    pub fn withdraw(&mut self, context: usize, ticket: u64) {
        if let Some(posted) = self.posted.get_mut(&context)
            && let Some(place) = posted.iter().rposition(|posted| posted.ticket == ticket)
            && let Some(withdrawn) = posted.remove(place)
        {
            if posted.is_empty() {
                self.posted.remove(&context);
            }
            self.ended(&withdrawn);
        }
    }

    /// Returns what an endpoint has too many of, the first time.
    pub fn excess(&mut self, endpoint: usize, of_receives: bool) -> Option<Excess> {
        let endpoint = self.endpoints.get_mut(&endpoint)?;
        let place = usize::from(of_receives);
        let outstanding = *endpoint.outstanding.get(place)?;
        let size = *endpoint.sizes.get(place)?;
        let is_reported = endpoint.is_reported.get_mut(place)?;
        if size == 0 || outstanding <= size || *is_reported {
            return None;
        }
        *is_reported = true;
        Some(Excess { outstanding, size })
    }

    /// Ends the operation that a completion belongs to.
    pub fn complete(&mut self, completion: &Completion) -> Matched {
        let fits = |posted: &Posted| match completion.flags {
            Some(flags) if flags & FI_RECV != 0 => posted.is_receive,
            Some(flags) if flags & (FI_SEND | FI_READ | FI_WRITE) != 0 => !posted.is_receive,
            _ => true,
        };
        if let Some(posted) = self.posted.get_mut(&completion.context)
            && let Some(place) = posted.iter().position(fits)
            && let Some(found) = posted.get(place)
        {
            let is_over = completion.error != 0
                || completion
                    .flags
                    .is_some_and(|flags| flags & FI_MULTI_RECV != 0);
            if (!found.stays || is_over)
                && let Some(found) = posted.remove(place)
            {
                if posted.is_empty() {
                    self.posted.remove(&completion.context);
                }
                self.ended(&found);
            }
            return Matched::Operation;
        }
        let of_peers = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
        match completion.flags {
            Some(flags) if flags & of_peers != 0 => Matched::Peer,
            // A queue without flags does not say so.
            None if completion.context == 0 => Matched::Peer,
            // The buffer's end may be said after the endpoint's last message.
            Some(flags) if flags & FI_MULTI_RECV != 0 => Matched::Operation,
            _ => Matched::Nothing,
        }
    }

    fn ended(&mut self, posted: &Posted) {
        if let Some(endpoint) = self.endpoints.get_mut(&posted.endpoint)
            && let Some(outstanding) = endpoint.outstanding.get_mut(usize::from(posted.is_receive))
        {
            *outstanding = outstanding.saturating_sub(1);
        }
    }

    /// Notes that there are operations that the ledger does not know.
    pub fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Whether all operations have been entered.
    pub fn knows_all(&self) -> bool {
        !self.is_in_doubt
    }

    /// Removes an object. Returns the operations that an endpoint leaves; their completions may
    /// still be read.
    pub fn close(&mut self, object: usize) -> Vec<Posted> {
        self.objects.remove(&object);
        if self.endpoints.remove(&object).is_none() {
            return Vec::new();
        }
        let mut left = Vec::new();
        for (&context, posted) in &self.posted {
            let before = left.len();
            left.extend(
                posted
                    .iter()
                    .filter(|posted| posted.endpoint == object)
                    .cloned(),
            );
            if left.len() > before {
                self.left.insert(context);
                bounded!(self.left, OPERATIONS);
            }
        }
        left
    }

    /// Returns how many objects of each class are open.
    pub fn objects(&self) -> Vec<(Kind, usize)> {
        let mut counts: Vec<(Kind, usize)> = Vec::new();
        for kind in self.objects.values() {
            match counts.iter_mut().find(|(of, _)| of == kind) {
                Some((_, count)) => *count += 1,
                None => counts.push((*kind, 1)),
            }
        }
        counts.sort_by_key(|(kind, _)| *kind as u8);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EP: usize = 0x100;
    const CQ: usize = 0x200;

    fn ledger(flags: u64) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.open(CQ, Kind::CompletionQueue, None);
        ledger.open(EP, Kind::Endpoint, Some((2, 4)));
        ledger.bind(EP, CQ, flags);
        ledger
    }

    fn posted(operation: Operation, is_requested: bool, stays: bool) -> Posted {
        Posted {
            endpoint: EP,
            operation,
            is_receive: operation.is_receive(),
            is_requested,
            stays,
            ticket: 0,
        }
    }

    fn completion(context: usize, flags: u64) -> Completion {
        Completion {
            context,
            flags: Some(flags),
            ..Completion::default()
        }
    }

    #[test]
    fn a_completion_ends_one_operation_with_its_context_and_direction() {
        let mut ledger = ledger(FI_TRANSMIT | FI_RECV);
        ledger.post(7, posted(Operation::MsgSend, false, false));
        ledger.post(7, posted(Operation::MsgRecv, false, false));
        let received = completion(7, FI_MSG | FI_RECV);
        assert_eq!(ledger.complete(&received), Matched::Operation);
        assert_eq!(ledger.complete(&received), Matched::Nothing);
        assert_eq!(
            ledger.complete(&completion(7, FI_MSG | FI_SEND)),
            Matched::Operation
        );
        assert!(ledger.close(EP).is_empty());
    }

    #[test]
    fn operations_without_a_completion_are_reported_when_the_endpoint_is_closed() {
        let mut ledger = ledger(FI_TRANSMIT | FI_RECV);
        ledger.post(1, posted(Operation::TaggedSend, false, false));
        let failed = ledger.post(2, posted(Operation::TaggedSend, false, false));
        ledger.withdraw(2, failed);
        let left = ledger.close(EP);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].operation, Operation::TaggedSend);
        // The completion may be in the queue.
        let flags = FI_TAGGED | FI_SEND;
        assert_eq!(ledger.complete(&completion(1, flags)), Matched::Operation);
    }

    #[test]
    fn a_context_of_a_closed_endpoint_is_free_for_the_next_one() {
        let mut ledger = ledger(FI_TRANSMIT | FI_RECV);
        ledger.post(1, posted(Operation::TaggedSend, false, false));
        assert_eq!(ledger.close(EP).len(), 1);
        ledger.open(EP + 1, Kind::Endpoint, None);
        ledger.bind(EP + 1, CQ, FI_TRANSMIT);
        let again = Posted {
            endpoint: EP + 1,
            ..posted(Operation::TaggedSend, false, false)
        };
        ledger.post(1, again);
        let sent = completion(1, FI_TAGGED | FI_SEND);
        assert_eq!(ledger.complete(&sent), Matched::Operation);
        assert!(ledger.close(EP + 1).is_empty());
    }

    #[test]
    fn an_operation_that_generates_no_completion_is_not_tracked() {
        let mut ledger = ledger(FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
        assert_eq!(ledger.post(1, posted(Operation::MsgSend, false, false)), 0);
        assert_ne!(
            ledger.post(2, posted(Operation::MsgSendmsg, true, false)),
            0
        );
        assert_eq!(ledger.close(EP).len(), 1);
    }

    #[test]
    fn a_multi_receive_buffer_completes_until_it_is_released() {
        let mut ledger = ledger(FI_RECV);
        ledger.post(3, posted(Operation::MsgRecvmsg, false, true));
        for _ in 0..3 {
            assert_eq!(
                ledger.complete(&completion(3, FI_MSG | FI_RECV)),
                Matched::Operation
            );
        }
        let last = completion(3, FI_MSG | FI_RECV | FI_MULTI_RECV);
        assert_eq!(ledger.complete(&last), Matched::Operation);
        assert_eq!(
            ledger.complete(&completion(3, FI_MSG | FI_RECV)),
            Matched::Nothing
        );
    }

    #[test]
    fn accesses_of_peers_belong_to_no_operation() {
        let mut ledger = ledger(FI_TRANSMIT | FI_RECV);
        let flags = FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA;
        assert_eq!(ledger.complete(&completion(0, flags)), Matched::Peer);
    }

    #[test]
    fn more_operations_than_the_endpoint_was_opened_for_are_reported_once() {
        let mut ledger = ledger(FI_TRANSMIT | FI_RECV);
        for context in 0..2 {
            ledger.post(context, posted(Operation::MsgSend, false, false));
            assert_eq!(ledger.excess(EP, false), None);
        }
        ledger.post(2, posted(Operation::MsgSend, false, false));
        let excess = Excess {
            outstanding: 3,
            size: 2,
        };
        assert_eq!(ledger.excess(EP, false), Some(excess));
        assert_eq!(ledger.excess(EP, false), None);
    }

    #[test]
    fn open_objects_are_counted_by_class() {
        let mut ledger = ledger(FI_RECV);
        ledger.open(0x300, Kind::CompletionQueue, None);
        let objects = ledger.objects();
        assert_eq!(objects, [(Kind::Endpoint, 1), (Kind::CompletionQueue, 2)]);
        ledger.close(0x300);
        assert_eq!(ledger.objects().len(), 2);
    }
}
