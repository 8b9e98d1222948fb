//! fi_atomic(3): the operations of devices, on 8 bytes.

use fabric_abi::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_CSWAP, FI_DIFF, FI_DOUBLE, FI_FLOAT_COMPLEX, FI_INT64,
    FI_SUM, FI_UINT64, fi_datatype, fi_op,
};
use prov_base::atomic_ops::Form;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_device::Keys;
use prov_message::OpClass;
use prov_util::desc::Descs;
use prov_util::request::{Atomic, AtomicKind};

use super::remote_key;
use crate::device::{Gather, Verb};
use crate::lane::{Operation, Seat, Work};
use crate::resources::Resources;

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

/// Posts an atomic operation. `-FI_EOPNOTSUPP` for one that devices do not have.
pub(super) fn post(domain: &Resources, seat: &Seat, atomic: &mut Atomic) -> Result {
    if !is_offered(atomic.kind.form(), atomic.datatype, atomic.op) {
        return Err(Errno::EOPNOTSUPP);
    }
    let remote = match atomic.remote.pieces() {
        [piece] if piece.len == SIZE as u64 => piece,
        _ => return Err(Errno::EINVAL),
    };
    let (address, key) = (remote.addr, remote_key(remote.key)?);
    let (class, verb, (mut local, keys)) = match &atomic.kind {
        AtomicKind::Base if atomic.op == FI_ATOMIC_WRITE => {
            let verb = Verb::Write { address, key };
            let local = piece(&atomic.operand, &atomic.desc)?;
            (OpClass::Atomic, verb, local)
        }
        // The old value is returned all the same.
        AtomicKind::Base => {
            let verb = Verb::FetchAdd {
                address,
                key,
                add: addend(atomic)?,
            };
            let mut local = Gather::empty();
            local.lead_by(domain.scratch()?, SIZE)?;
            (OpClass::Atomic, verb, (local, Keys::NONE))
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
                    add: addend(atomic)?,
                },
            };
            (OpClass::FetchAtomic, verb, piece(result, result_desc)?)
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
            (OpClass::FetchAtomic, verb, piece(result, result_desc)?)
        }
    };
    seat.lane.send(
        seat.name,
        Operation {
            class,
            flags: atomic.flags,
            context: atomic.context,
        },
        Work {
            verb,
            local: &mut local,
            keys,
            len: SIZE,
            immediate: None,
        },
    )
}

/// Returns memory for the device, which must be one segment.
fn piece(memory: &AppIov, descs: &Descs) -> Result<(Gather, Keys)> {
    match memory.single() {
        Some(piece) if memory.len() == SIZE => Gather::of_piece(piece, descs),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the number to add; a subtraction adds the negated operand.
fn addend(atomic: &Atomic) -> Result<u64> {
    let operand = value(&atomic.operand)?;
    Ok(match atomic.op {
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
