//! Operations that are complete but for bytes that a device still copies to its memory: they are
//! reported when it has.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::device_memory::Waits;
use prov_base::errno::Result;

use crate::endpoints::Endpoints;
use crate::endpoints::transport::Transport;
use crate::operation::{EpKey, Ticket};
use crate::receipt::Receipt;

/// See the [module](self) description.
pub(crate) struct Behind<A> {
    what: What<A>,
    memory: AppIov,
    outcome: Result,
    _waits: Waits,
}

enum What<A> {
    Receive(Receipt<A>),
    Read(Ticket),
}

impl<A> Behind<A> {
    /// A receive.
    pub fn receive(receipt: Receipt<A>, memory: AppIov, outcome: Result) -> Self {
        Behind {
            what: What::Receive(receipt),
            memory,
            outcome,
            _waits: Waits::new(),
        }
    }

    fn ep(&self) -> EpKey {
        match &self.what {
            What::Receive(receipt) => receipt.ep,
            What::Read(ticket) => ticket.op().ep,
        }
    }
}

impl<T: Transport> Endpoints<T> {
    /// Ends a read whose bytes are in the application's memory.
    #[inline]
    pub fn finish_read(&mut self, ticket: Ticket, memory: AppIov, outcome: Result) {
        if memory.is_settled() {
            let outcome = outcome.and(memory.take_failure());
            return self.finish(ticket, outcome);
        }
        self.behind.push(Behind {
            what: What::Read(ticket),
            memory,
            outcome,
            _waits: Waits::new(),
        });
        bounded!(self.behind, OPERATIONS);
    }

    /// Reports operations whose copies have been made. Returns whether others wait on.
    #[cold]
    pub(crate) fn settle_behind(&mut self) -> bool {
        for inbox in self.inboxes.values_mut() {
            self.behind.append(&mut inbox.behind);
        }
        let (ready, waiting) = std::mem::take(&mut self.behind)
            .into_iter()
            .partition(|behind| behind.memory.is_settled());
        self.behind = waiting;
        for Behind {
            what,
            memory,
            outcome,
            ..
        } in Vec::from_iter(ready)
        {
            match what {
                What::Receive(receipt) => {
                    self.received(&receipt, memory, outcome);
                }
                What::Read(ticket) => self.finish_read(ticket, memory, outcome),
            }
        }
        !self.behind.is_empty()
    }

    /// Waits for the copies to memory of an endpoint's operations, which are not reported.
    pub(crate) fn end_behind(&mut self, ep: EpKey) {
        for inbox in self.inboxes.values_mut() {
            self.behind.append(&mut inbox.behind);
        }
        let (its, others): (Vec<_>, _) = std::mem::take(&mut self.behind)
            .into_iter()
            .partition(|behind| behind.ep() == ep);
        self.behind = others;
        for behind in its {
            let _ = behind.memory.take_failure();
            if let What::Read(ticket) = behind.what {
                self.settle(ticket);
            }
        }
    }
}
