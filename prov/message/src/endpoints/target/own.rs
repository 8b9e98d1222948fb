//! One-sided operations on the memory of an endpoint in the same process, performed when they are
//! posted.

use fabric_abi::{FI_COMMIT_COMPLETE, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use prov_util::request::{Access, Atomic, RemoteAccess};

use super::{AtomicRequest, Refusal, RmaTarget, Visitor};

impl RmaTarget {
    /// Performs a read or a write.
    pub fn access(&mut self, visitor: &Visitor<'_>, access: &RemoteAccess) -> Result<(), Refusal> {
        let (local, list) = (&access.local, access.remote.pieces());
        match access.access {
            Access::Read => {
                let grants = self.resolve(visitor, FI_REMOTE_READ, list, None)?;
                grants.copy_to(&mut self.memory, local);
                self.was_read(visitor, &grants);
            }
            Access::Write => {
                let grants = self.resolve(visitor, FI_REMOTE_WRITE, list, access.immediate())?;
                grants.copy_from(&mut self.memory, 0, local);
                if access.flags & FI_COMMIT_COMPLETE != 0 {
                    grants.write_back(&mut self.memory);
                }
                self.was_written(visitor, &grants, FI_RMA, access.immediate());
            }
        }
        Ok(())
    }

    /// Performs an atomic operation.
    pub fn atomic_of(&mut self, visitor: &Visitor<'_>, atomic: &Atomic) -> Result<(), Refusal> {
        let (mut operands, mut old) = (
            std::mem::take(&mut self.operands),
            std::mem::take(&mut self.old),
        );
        operands.clear();
        atomic.operand.append_to(&mut operands);
        atomic.kind.compare().append_to(&mut operands);
        let request = AtomicRequest {
            form: atomic.kind.form(),
            op: atomic.op,
            datatype: atomic.datatype,
            operands: &operands,
            data: atomic.immediate(),
        };
        let outcome = self.atomic(visitor, atomic.remote.pieces(), &request, &mut old);
        if let (Ok(()), Some(result)) = (&outcome, atomic.kind.result()) {
            result.write_at(0, &old);
        }
        (self.operands, self.old) = (operands, old);
        outcome
    }
}
