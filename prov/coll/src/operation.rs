//! An operation under way at one member.

use fabric_abi::fi_addr_t;
use prov_util::atomic_ops::{Datatype, Op};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::FidRef;

use crate::memory::Memories;
use crate::program::{Pieces, Program, Step};

/// What is told at the end, and to whom. Contexts are addresses, with exposed provenance, and never followed here.
pub enum Then {
    /// A completion of a call with this context; of success only where it is asked for.
    Complete { context: usize, is_reported: bool },
    /// An event that the group has been joined, or has not.
    Joined { group: FidRef, context: usize },
}

/// See the [module](self) description.
pub struct Operation {
    /// The group's address.
    pub group: fi_addr_t,
    /// Its place in the order of the group's operations.
    pub number: u16,
    pub program: Program,
    /// The step that comes next.
    at: usize,
    /// Messages posted that have not ended.
    under_way: usize,
    pub memory: Memories,
    pub datatype: Option<Datatype>,
    pub op: Option<Op>,
    pub then: Then,
    /// Why it has failed.
    pub failed: Option<Errno>,
}

/// What an operation wants to be done.
#[derive(Clone, Copy, Debug)]
pub enum Wants {
    /// A message to be sent to a rank.
    Send(usize, Pieces),
    /// A receive from a rank to be posted.
    Receive(usize, Pieces),
    /// Nothing until a message ends.
    Wait,
    /// It is over.
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

    /// Messages that have not ended.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Does what needs no message, up to the next thing that does.
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

    /// What it wanted has been posted.
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

    /// It goes no further, for the first cause that is told.
    pub fn fail(&mut self, error: Errno) {
        self.failed.get_or_insert(error);
    }
}
