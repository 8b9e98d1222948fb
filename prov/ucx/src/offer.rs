//! fi_getinfo(3): the one kind of endpoint, where UCX has something to run on.

use std::fs;
use std::path::Path;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_util::attr::{
    Base, DomainAttr, EpAttr, FabricAttr, Hints, Info, MR_BASIC, MR_BASIC_BITS, Nic, NicLink,
    Request, RxAttr, TxAttr,
};

use crate::VERSION;
use crate::params::Params;
use crate::sys::Libucp;

/// Name of the provider, and of its fabric and domain.
const NAME: &str = "ucx";
/// Length of an address in bytes: that of a worker, followed by zeros.
pub const ADDRESS_LEN: usize = 1024;
/// Largest raw key in bytes.
pub const KEY_LEN: usize = 64;
/// `FI_TAG_GENERIC`: all bits of a tag are the application's.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Version 1.5, as UCP has it in a number.
const PROTOCOL_VERSION: u32 = 1 << 24 | 5 << 16;
/// Operations in each direction that are announced.
const SIZE: usize = 384;

const REACH: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_SEND
    | FI_RECV
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_HMEM
    | REACH;

/// PCI vendor number of NVIDIA's network devices.
const VENDOR: &str = "0x15b3";
const DEVICES: &str = "/sys/class/infiniband";

/// Returns the endpoints that match.
///
/// # Errors
/// `-FI_ENODATA` if none does, or if there is nothing to run on.
pub fn getinfo(request: &Request<'_>, params: &Params) -> Result<Vec<Info>> {
    let device = device_speed(Path::new(DEVICES));
    if !params.names_devices() && device.is_none() {
        request.refuse(
            &"there is no RDMA device of NVIDIA, and FI_UCX_DEVICES names no other device \
              (all stands for any)",
        );
        return Err(Errno::ENODATA);
    }
    if let Err(reason) = Libucp::get() {
        request.refuse(&format_args!("UCX cannot be loaded: {reason}"));
        return Err(Errno::ENODATA);
    }
    // Addresses are exchanged by the application, whatever it calls their format.
    let hints = request.hints.map(|hints| Hints {
        addr_format: FI_FORMAT_UNSPEC,
        src_addr: Vec::new(),
        dest_addr: Vec::new(),
        ..hints.clone()
    });
    if let Some(hints) = &hints
        && (hints.fabric_name().is_some_and(|name| name != NAME)
            || hints.domain_name().is_some_and(|name| name != NAME))
    {
        request.refuse(&"the fabric or the domain has another name");
        return Err(Errno::ENODATA);
    }
    let asked = Request {
        node: None,
        service: None,
        flags: 0,
        hints: hints.as_ref(),
        ..*request
    };
    let mut infos = asked.fitting(&[base(params)])?;
    let registers_devices = |hints: &Hints| {
        let domain = hints.domain.as_ref();
        domain.is_some_and(|domain| domain.mr_mode & FI_MR_HMEM != 0)
    };
    for info in &mut infos {
        if hints.as_ref().is_some_and(registers_devices) {
            info.domain.mr_mode |= FI_MR_HMEM;
        }
        info.nic = Some(Nic {
            link: NicLink {
                speed: device.unwrap_or(0),
                ..NicLink::default()
            },
            ..Nic::default()
        });
    }
    Ok(infos)
}

/// Returns all that is supported.
pub fn base(params: &Params) -> Base {
    let name = || Some(NAME.to_owned());
    Base::from(Info {
        caps: CAPS,
        addr_format: FI_ADDR_UCX,
        tx: TxAttr {
            caps: CAPS,
            op_flags: FI_COMPLETION | FI_INJECT,
            msg_order: FI_ORDER_SAS,
            inject_size: usize::try_from(params.inject_limit).unwrap_or(0),
            size: SIZE,
            iov_limit: 1,
            rma_iov_limit: 1,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: CAPS,
            op_flags: FI_COMPLETION | FI_MULTI_RECV,
            msg_order: FI_ORDER_SAS,
            size: SIZE,
            iov_limit: 4,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: FI_EP_RDM,
            protocol: FI_PROTO_UCX,
            protocol_version: PROTOCOL_VERSION,
            max_msg_size: usize::MAX,
            mem_tag_format: TAG_FORMAT,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: name(),
            caps: REACH,
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_AUTO,
            data_progress: FI_PROGRESS_MANUAL,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_UNSPEC,
            mr_mode: MR_BASIC | MR_BASIC_BITS | FI_MR_RAW,
            mr_key_size: KEY_LEN,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            mr_iov_limit: 1,
            mr_cnt: 1 << 16,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: name(),
            prov_name: name(),
            prov_version: VERSION,
            ..FabricAttr::default()
        },
        ..Info::default()
    })
}

/// Returns the speed in bits per second of the first RDMA device of NVIDIA under this directory, 0
/// if that is unknown; `None` if there is no such device.
fn device_speed(devices: &Path) -> Option<usize> {
    let is_of_vendor = |path: &Path| {
        let vendor = fs::read_to_string(path.join("device/vendor"));
        vendor.is_ok_and(|vendor| vendor.trim() == VENDOR)
    };
    let mut found = fs::read_dir(devices).ok()?.flatten();
    let device = found.find_map(|entry| Some(entry.path()).filter(|path| is_of_vendor(path)))?;
    let rate = fs::read_to_string(device.join("ports/1/rate")).unwrap_or_default();
    let gigabits = rate
        .split_whitespace()
        .next()
        .and_then(|rate| rate.parse().ok());
    Some(gigabits.map_or(0, |rate: usize| rate.saturating_mul(1_000_000_000)))
}
