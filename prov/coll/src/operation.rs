//! An operation in progress at one member.

use fabric_abi::fi_addr_t;
use prov_base::atomic_ops::{Datatype, Op};
use prov_base::errno::{Errno, Result};
use prov_util::ffi::FidRef;

use crate::memory::Memories;
use crate::program::{Pieces, Program, Step, receivers};

/// What is reported at the end, and where. Contexts are addresses, with exposed provenance, and
/// never dereferenced here.
pub enum Then {
    /// The completion of a call with this context; success is written only if `is_reported`.
    Complete { context: usize, is_reported: bool },
    /// Nothing yet: the first barrier of a group has ended, unless it has failed.
    Agreed(Joined),
    /// An event that the group has been joined, or has not.
    Joined(Joined),
}

/// The group and the context of the event.
pub type Joined = (FidRef, usize);

/// See the [module](self) description.
pub struct Operation {
    /// The group's address.
    pub group: fi_addr_t,
    /// Its place in the order of the group's operations.
    pub number: u16,
    pub program: Program,
    /// The index of the next step.
    at: usize,
    /// Number of posted messages that have not ended.
    under_way: usize,
    pub memory: Memories,
    pub datatype: Option<Datatype>,
    pub op: Option<Op>,
    pub then: Then,
    /// The error with which it has failed.
    pub failed: Option<Errno>,
}

/// The next thing to do for an operation.
#[derive(Clone, Copy, Debug)]
pub enum Wants {
    /// Send a message to a rank.
    Send(usize, Pieces),
    /// Post a receive from a rank.
    Receive(usize, Pieces),
    /// Wait until a message ends.
    Wait,
    /// The operation has ended.
    Nothing,
}

impl Operation {
    pub fn new(
        group: fi_addr_t,
        number: u16,
        program: Program,
        memory: Memories,
        (datatype, op): (Option<Datatype>, Option<Op>),
        then: Then,
    ) -> Self {
        Operation {
            group,
            number,
            program,
            at: 0,
            under_way: 0,
            memory,
            datatype,
            op,
            then,
            failed: None,
        }
    }

    /// Returns the number of messages that have not ended.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns the ranks to which messages have yet to be posted.
    pub fn receivers(&self) -> impl Iterator<Item = usize> + '_ {
        receivers(self.program.steps.get(self.at..).unwrap_or_default())
    }

    /// Executes the steps that need no message, and returns what to do next.
    pub fn next(&mut self) -> Wants {
        loop {
            if self.failed.is_some() {
                return match self.under_way {
                    0 => Wants::Nothing,
                    _ => Wants::Wait,
                };
            }
            let Some(step) = self.program.steps.get(self.at) else {
                return match self.under_way {
                    0 => Wants::Nothing,
                    _ => Wants::Wait,
                };
            };
            match *step {
                Step::Send { to, pieces } => return Wants::Send(to, pieces),
                Step::Receive { from, pieces } => return Wants::Receive(from, pieces),
                Step::Wait if self.under_way > 0 => return Wants::Wait,
                Step::Wait => {}
                Step::Copy { from, to } => self.memory.copy(from, to),
                Step::Combine { into, with } => {
                    if let Err(error) = self.combine(into, with) {
                        self.failed = Some(error);
                    }
                }
            }
            self.at += 1;
        }
    }

    fn combine(&self, into: crate::program::Span, with: crate::program::Span) -> Result {
        let op = self.op.ok_or(Errno::EOPNOTSUPP)?;
        let datatype = self.datatype.ok_or(Errno::EOPNOTSUPP)?;
        self.memory.combine(op, datatype, into, with)
    }

    /// The message that [`Operation::next`] returned has been posted.
    pub fn posted(&mut self) {
        self.at += 1;
        self.under_way += 1;
    }

    /// A message has ended.
    pub fn ended(&mut self, outcome: Result) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Err(error) = outcome {
            self.fail(error);
        }
    }

    /// Fails the operation; the first error is kept.
    pub fn fail(&mut self, error: Errno) {
        self.failed.get_or_insert(error);
    }
}
