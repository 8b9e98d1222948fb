//! fi_atomic(3): the operations of devices, on 8 bytes.

use fabric_abi::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_CSWAP, FI_DIFF, FI_DOUBLE, FI_FLOAT_COMPLEX, FI_INT64,
    FI_SUM, FI_UINT64, fi_datatype, fi_op,
};
use prov_base::atomic_ops::{Form, Offered};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::OpClass;
use prov_util::request::{Atomic, AtomicKind};

use super::remote_key;
use crate::device::{Device, Keys, Local, Remote, RemoteKind, Verb};
use crate::lane::{Operation, Seats, Work};

/// Number of bytes of every atomic operation.
const SIZE: usize = size_of::<u64>();

/// Whether devices have such an operation. They add, compare and replace integers; reads and writes
/// work for any type of 8 bytes.
pub fn is_offered(form: Form, datatype: fi_datatype, op: fi_op) -> bool {
    let is_integer = datatype == FI_INT64 || datatype == FI_UINT64;
    match (form, op) {
        (Form::Base, FI_ATOMIC_WRITE) | (Form::Fetch, FI_ATOMIC_READ) => {
            is_integer || datatype == FI_DOUBLE || datatype == FI_FLOAT_COMPLEX
        }
        (Form::Base | Form::Fetch, FI_SUM | FI_DIFF) | (Form::Compare, FI_CSWAP) => is_integer,
        _ => false,
    }
}

/// The atomic operations that devices have.
pub const ATOMICS: Offered = Offered {
    bytes: SIZE,
    filter: |datatype, op, flags| {
        // Flags that name no form are judged by the caller.
        Form::from_flags(flags).map_or(true, |form| is_offered(form, datatype, op))
    },
};

impl<D: Device> Seats<D> {
    /// Posts an atomic operation. `scratch` returns 8 bytes for a result that is not needed. If that
    /// fails, the operation is whole.
    ///
    /// # Errors
    /// `-FI_EOPNOTSUPP` for an operation that devices do not have.
    pub fn atomic(
        &self,
        atomic: &mut Atomic,
        scratch: impl FnOnce() -> Result<D::Local>,
    ) -> Result {
        let seat = self.sender()?;
        if !is_offered(atomic.kind.form(), atomic.datatype, atomic.op) {
            return Err(Errno::EOPNOTSUPP);
        }
        let remote = match atomic.remote.pieces() {
            [piece] if piece.len == SIZE as u64 => piece,
            _ => return Err(Errno::EINVAL),
        };
        let (address, key) = (remote.addr, remote_key(remote.key)?);
        let fetch_add = |add| RemoteKind::FetchAdd { add };
        let (kind, lent) = match &mut atomic.kind {
            AtomicKind::Base if atomic.op == FI_ATOMIC_WRITE => {
                (RemoteKind::Write, Some((&mut atomic.operand, &atomic.desc)))
            }
            // The old value is returned all the same.
            AtomicKind::Base => (fetch_add(addend(&atomic.operand, atomic.op)?), None),
            AtomicKind::Fetch {
                result,
                result_desc,
            } => {
                let kind = match atomic.op {
                    FI_ATOMIC_READ => RemoteKind::Read,
                    op => fetch_add(addend(&atomic.operand, op)?),
                };
                (kind, Some((result, &*result_desc)))
            }
            AtomicKind::Compare {
                compare,
                result,
                result_desc,
                ..
            } => {
                let kind = RemoteKind::CompareSwap {
                    compare: value(compare)?,
                    swap: value(&atomic.operand)?,
                };
                (kind, Some((result, &*result_desc)))
            }
        };
        let class = match &lent {
            None => OpClass::Atomic,
            Some(_) if matches!(kind, RemoteKind::Write) => OpClass::Atomic,
            Some(_) => OpClass::FetchAtomic,
        };
        let operation = Operation {
            class,
            flags: atomic.flags,
            context: atomic.context,
        };
        let post = |local: &mut D::Local, keys| {
            let work = Work {
                verb: Verb::Remote(Remote { address, key, kind }),
                local,
                keys,
                len: SIZE,
                immediate: None,
            };
            seat.lane.send(seat.name, operation, work)
        };
        let Some((memory, descs)) = lent else {
            return post(&mut scratch()?, Keys::NONE);
        };
        if memory.single().is_none() || memory.len() != SIZE {
            return Err(Errno::EINVAL);
        }
        let mut local = D::Local::empty();
        let keys = local.fill(memory, descs)?;
        post(&mut local, keys).inspect_err(|_| local.give_back(memory))
    }
}

/// Returns the number to add; a subtraction adds the negated operand.
fn addend(operand: &AppIov, op: fi_op) -> Result<u64> {
    let operand = value(operand)?;
    Ok(match op {
        FI_DIFF => operand.wrapping_neg(),
        _ => operand,
    })
}

/// Returns the operand in the application's memory.
fn value(memory: &AppIov) -> Result<u64> {
    let mut bytes = [0; SIZE];
    match memory.len() == SIZE && memory.read_at(0, &mut bytes) == SIZE {
        true => Ok(u64::from_ne_bytes(bytes)),
        false => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_abi::{FI_INT32, FI_MAX};

    #[test]
    fn only_features_of_the_devices_are_offered() {
        assert!(is_offered(Form::Fetch, FI_UINT64, FI_SUM));
        assert!(is_offered(Form::Compare, FI_INT64, FI_CSWAP));
        assert!(is_offered(Form::Base, FI_INT64, FI_ATOMIC_WRITE));
        assert!(is_offered(Form::Base, FI_UINT64, FI_SUM));
        assert!(is_offered(Form::Fetch, FI_INT64, FI_DIFF));
        assert!(is_offered(Form::Fetch, FI_DOUBLE, FI_ATOMIC_READ));
        for (form, datatype, op) in [
            (Form::Fetch, FI_INT32, FI_SUM),
            (Form::Fetch, FI_DOUBLE, FI_SUM),
            (Form::Fetch, FI_UINT64, FI_MAX),
            (Form::Base, FI_DOUBLE, FI_SUM),
            (Form::Base, FI_INT32, FI_ATOMIC_WRITE),
            (Form::Base, FI_UINT64, FI_ATOMIC_READ),
            (Form::Compare, FI_DOUBLE, FI_CSWAP),
            (Form::Compare, FI_UINT64, FI_SUM),
            (Form::Fetch, FI_UINT64, FI_CSWAP),
        ] {
            assert!(!is_offered(form, datatype, op), "{form:?} {datatype} {op}");
        }
    }
}
