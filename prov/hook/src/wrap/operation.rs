//! The functions of the interface's tables, and what their text says about each.

use fabric_abi::*;

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

/// The table that an operation is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Table {
    Fid,
    Fabric,
    Domain,
    Mr,
    Av,
    AvSet,
    Ep,
    Cm,
    Msg,
    Tagged,
    Rma,
    Atomic,
    Collective,
    Cq,
    Cntr,
    Eq,
    Wait,
    Poll,
    XpuCtx,
}

impl Table {
    /// Returns the subsystem of the log that calls of the table belong to.
    pub fn subsystem(self) -> fi_log_subsys {
        match self {
            Table::Fid => FI_LOG_CORE,
            Table::Fabric | Table::Wait => FI_LOG_FABRIC,
            Table::Domain | Table::Poll | Table::XpuCtx => FI_LOG_DOMAIN,
            Table::Mr => FI_LOG_MR,
            Table::Av | Table::AvSet => FI_LOG_AV,
            Table::Ep | Table::Cm => FI_LOG_EP_CTRL,
            Table::Msg | Table::Tagged | Table::Rma | Table::Atomic | Table::Collective => {
                FI_LOG_EP_DATA
            }
            Table::Cq => FI_LOG_CQ,
            Table::Cntr => FI_LOG_CNTR,
            Table::Eq => FI_LOG_EQ,
        }
    }
}

/// What the text of the interface says about an operation. Arguments are numbered from 0, without
/// the object; `NONE` where there is no such argument.
pub(super) struct Facts {
    pub name: &'static str,
    pub table: Table,
    pub arguments: &'static [&'static str],
    pub context: usize,
    pub flags: usize,
    /// A structure with the other arguments (`fi_msg` and its relatives, `fi_mr_attr`).
    pub described: usize,
    pub len: usize,
    pub vector: usize,
    pub count: usize,
    pub opened: usize,
    pub datatype: usize,
    pub buf: usize,
    pub event: usize,
}

/// The place of an argument that a function does not have.
pub(super) const NONE: usize = usize::MAX;

impl Operation {
    /// Returns the number of the operation, an index of [`Operation::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    #[allow(clippy::indexing_slicing, reason = "there are facts of each operation")]
    pub(super) fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Returns the name of the function that applications call.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the table that the operation is in.
    pub fn table(self) -> Table {
        self.facts().table
    }

    /// Returns whether the operation moves data.
    #[inline]
    pub fn is_transfer(self) -> bool {
        use Table::*;
        matches!(self.table(), Msg | Tagged | Rma | Atomic | Collective)
    }

    /// Returns whether the operation posts a receive.
    pub fn is_receive(self) -> bool {
        use Operation::*;
        matches!(
            self,
            MsgRecv | MsgRecvv | MsgRecvmsg | TaggedRecv | TaggedRecvv | TaggedRecvmsg
        )
    }

    /// Returns whether the operation copies its data before it returns, and never completes.
    pub fn is_inject(self) -> bool {
        use Operation::*;
        matches!(
            self,
            MsgInject
                | MsgInjectdata
                | TaggedInject
                | TaggedInjectdata
                | RmaInject
                | RmaInjectdata
                | AtomicInject
        )
    }

    /// Returns whether the operation reads entries of a completion queue.
    pub fn reads_completions(self) -> bool {
        use Operation::*;
        matches!(self, CqRead | CqReadfrom | CqSread | CqSreadfrom)
    }
}
