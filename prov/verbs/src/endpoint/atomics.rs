//! fi_atomic(3): what devices have of it, on 8 bytes.

use fabric_abi::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_CSWAP, FI_INT64, FI_SUM, FI_UINT64, fi_datatype, fi_op,
};
use prov_message::OpClass;
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::request::{Atomic, AtomicKind};

use super::{Seat, remote_key};
use crate::device::{Gather, Verb};
use crate::lane::{Operation, Work};

/// Bytes of every atomic operation.
const SIZE: usize = size_of::<u64>();

/// The kinds of atomic operations, by what comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `fi_atomic`
    Base,
    /// `fi_fetch_atomic`
    Fetch,
    /// `fi_compare_atomic`
    Compare,
}

/// Whether devices have such an operation.
pub fn is_offered(form: Form, datatype: fi_datatype, op: fi_op) -> bool {
    let op_fits = match form {
        Form::Base => op == FI_ATOMIC_WRITE,
        Form::Fetch => op == FI_SUM || op == FI_ATOMIC_READ,
        Form::Compare => op == FI_CSWAP,
    };
    op_fits && (datatype == FI_INT64 || datatype == FI_UINT64)
}

/// Posts an atomic operation. `-FI_EOPNOTSUPP` for one that devices do not have.
pub(super) fn post(seat: &Seat, atomic: &Atomic) -> Result {
    let form = match atomic.kind {
        AtomicKind::Base => Form::Base,
        AtomicKind::Fetch { .. } => Form::Fetch,
        AtomicKind::Compare { .. } => Form::Compare,
    };
    if !is_offered(form, atomic.datatype, atomic.op) {
        return Err(Errno::EOPNOTSUPP);
    }
    let remote = match atomic.remote.pieces() {
        [piece] if piece.len == SIZE as u64 => piece,
        _ => return Err(Errno::EINVAL),
    };
    let (address, key) = (remote.addr, remote_key(remote.key)?);
    let (class, verb, memory, descs) = match &atomic.kind {
        AtomicKind::Base => {
            let verb = Verb::Write { address, key };
            (OpClass::Atomic, verb, &atomic.operand, &atomic.desc)
        }
        AtomicKind::Fetch {
            result,
            result_desc,
        } => {
            let verb = match atomic.op {
                FI_ATOMIC_READ => Verb::Read { address, key },
                _ => Verb::FetchAdd {
                    address,
                    key,
                    add: value(&atomic.operand)?,
                },
            };
            (OpClass::FetchAtomic, verb, result, result_desc)
        }
        AtomicKind::Compare {
            compare,
            result,
            result_desc,
            ..
        } => {
            let verb = Verb::CompareSwap {
                address,
                key,
                compare: value(compare)?,
                swap: value(&atomic.operand)?,
            };
            (OpClass::FetchAtomic, verb, result, result_desc)
        }
    };
    // The device takes one piece.
    if memory.len() != SIZE || memory.pieces().len() != 1 {
        return Err(Errno::EINVAL);
    }
    let local = Gather::new(memory, descs)?;
    seat.lane.send(
        seat.name,
        Operation {
            class,
            flags: atomic.flags,
            is_reported: atomic.wants_completion(),
            context: atomic.context,
        },
        &Work {
            verb,
            local: &local,
            len: SIZE,
            immediate: None,
        },
    )
}

/// The operand in the application's memory.
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
    use fabric_abi::{FI_DOUBLE, FI_INT32, FI_MAX};

    #[test]
    fn only_what_devices_have_is_offered() {
        assert!(is_offered(Form::Fetch, FI_UINT64, FI_SUM));
        assert!(is_offered(Form::Compare, FI_INT64, FI_CSWAP));
        assert!(is_offered(Form::Base, FI_INT64, FI_ATOMIC_WRITE));
        for (form, datatype, op) in [
            (Form::Fetch, FI_INT32, FI_SUM),
            (Form::Fetch, FI_DOUBLE, FI_SUM),
            (Form::Fetch, FI_UINT64, FI_MAX),
            (Form::Base, FI_UINT64, FI_SUM),
            (Form::Compare, FI_UINT64, FI_SUM),
            (Form::Fetch, FI_UINT64, FI_CSWAP),
        ] {
            assert!(!is_offered(form, datatype, op), "{form:?} {datatype} {op}");
        }
    }
}
