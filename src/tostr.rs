//! `fi_tostr`: values as text (fi_getinfo(3), fi_tostr in fi_fabric(3)).

pub mod names;
mod object;
mod structures;

use std::ffi::c_void;

use fabric_abi::*;

use crate::deep::Deep;
use crate::level::Level;
use crate::version::RELEASE;
use structures::Lines;

/// Returns the text of the value at `data`, whose type is one of `FI_TYPE_*`.
///
/// # Safety
/// `data` is not NULL and points to a value of that type, valid with all that
/// it points to. `FI_TYPE_VERSION` has no value and does not look at it.
pub unsafe fn text(data: *const c_void, datatype: fi_type) -> String {
    // SAFETY: the caller guarantees that `data` refers to a value of the type, and each arm reads
    // it as that type.
    unsafe {
        let enumerator = |names| names::enumerator(names, u64::from(*data.cast::<u32>())).into();
        let flags = |names| names::flags(names, *data.cast::<u64>());
        match datatype {
            FI_TYPE_INFO => lines(data, Lines::info),
            FI_TYPE_EP_TYPE => enumerator(names::EP_TYPES),
            FI_TYPE_CAPS => flags(names::CAPABILITIES),
            FI_TYPE_OP_FLAGS => flags(names::OP_FLAGS),
            FI_TYPE_ADDR_FORMAT => enumerator(names::ADDRESS_FORMATS),
            FI_TYPE_TX_ATTR => lines(data, |out, attr: Deep<_>| out.tx_attr(Some(&attr))),
            FI_TYPE_RX_ATTR => lines(data, |out, attr: Deep<_>| out.rx_attr(Some(&attr))),
            FI_TYPE_EP_ATTR => lines(data, |out, attr| out.ep_attr(Some(attr))),
            FI_TYPE_DOMAIN_ATTR => lines(data, |out, attr| out.domain_attr(Some(attr))),
            FI_TYPE_FABRIC_ATTR => lines(data, |out, attr| out.fabric_attr(Some(attr))),
            FI_TYPE_THREADING => enumerator(names::THREADING),
            FI_TYPE_PROGRESS => enumerator(names::PROGRESS),
            FI_TYPE_PROTOCOL => enumerator(names::PROTOCOLS),
            FI_TYPE_MSG_ORDER => flags(names::MESSAGE_ORDER),
            FI_TYPE_MODE => flags(names::MODES),
            FI_TYPE_AV_TYPE => enumerator(names::AV_TYPES),
            FI_TYPE_ATOMIC_TYPE => enumerator(names::ATOMIC_TYPES),
            FI_TYPE_ATOMIC_OP => enumerator(names::ATOMIC_OPS),
            FI_TYPE_VERSION => RELEASE.into(),
            FI_TYPE_EQ_EVENT => enumerator(names::EQ_EVENTS),
            FI_TYPE_CQ_EVENT_FLAGS => flags(names::CQ_EVENT_FLAGS),
            FI_TYPE_MR_MODE => names::flags(names::MR_MODES, u64::from(*data.cast::<u32>())),
            FI_TYPE_OP_TYPE => enumerator(names::OP_TYPES),
            FI_TYPE_FID => lines(data, |out, fid| out.object("fid", Some(fid))),
            FI_TYPE_COLLECTIVE_OP => enumerator(names::COLLECTIVE_OPS),
            FI_TYPE_HMEM_IFACE => enumerator(names::HMEM_INTERFACES),
            FI_TYPE_CQ_FORMAT => enumerator(names::CQ_FORMATS),
            FI_TYPE_LOG_LEVEL => Level::from_c(*data.cast())
                .map_or("Unknown", Level::name)
                .into(),
            FI_TYPE_LOG_SUBSYS => prov_base::logging::SUBSYSTEMS
                .get(*data.cast::<u32>() as usize)
                .copied()
                .unwrap_or("Unknown")
                .into(),
            FI_TYPE_AV_ATTR => lines(data, Lines::av_attr),
            FI_TYPE_CQ_ATTR => lines(data, |out, attr: Deep<_>| out.cq_attr(&attr)),
            FI_TYPE_MR_ATTR => lines(data, Lines::mr_attr),
            FI_TYPE_CNTR_ATTR => lines(data, |out, attr: Deep<_>| out.cntr_attr(&attr)),
            FI_TYPE_CQ_ERR_ENTRY => lines(data, |out, entry: Deep<_>| out.cq_err_entry(&entry)),
            FI_TYPE_CQ_WAIT_COND => enumerator(names::CQ_WAIT_CONDITIONS),
            FI_TYPE_WAIT_OBJ => enumerator(names::WAIT_OBJECTS),
            _ => "Unknown type".into(),
        }
    }
}

/// Returns the text of an `fi_info` with everything below it.
pub fn info(info: Deep<fi_info>) -> String {
    let mut out = Lines::new();
    out.info(info);
    out.finish()
}

/// Returns the lines of one structure.
///
/// # Safety
/// As for [`text`]: `data` points to a valid `T`.
unsafe fn lines<T>(data: *const c_void, print: impl FnOnce(&mut Lines, Deep<T>)) -> String {
    let mut out = Lines::new();
    // SAFETY: the caller guarantees that `data` refers to a valid `T`.
    if let Some(value) = unsafe { Deep::new(data.cast::<T>()) } {
        print(&mut out, value);
    }
    out.finish()
}
