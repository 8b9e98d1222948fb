//! What rxd offers over the providers below (fi_getinfo(3)): the endpoints below that it accepts,
//! and the endpoints that it makes of them.

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_message::{Sizes, attributes};
use prov_util::attr::{
    Base, DomainAttr, FabricAttr, Hints, Info, MODE_LOCAL_MR, MR_BASIC, MR_SCALABLE, Request,
    version,
};
use prov_util::below::offers::{Layer, REACH, all_below, one_below};

use crate::VERSION;
use crate::params::Params;
use crate::protocol::{MAX_MTU, MIN_MTU};

/// This provider as a layer.
const LAYER: Layer = Layer("ofi_rxd");
/// The capabilities that endpoints below must have.
const BELOW_CAPS: u64 = FI_MSG | FI_SEND | FI_RECV;
/// Modes of the provider below that this provider handles itself.
const BELOW_MODES: u64 = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | MODE_LOCAL_MR;
/// Registration modes of the provider below that this provider handles itself: it registers its own
/// buffers, and peers do not access the application's memory through the provider below.
const BELOW_MR_MODES: i32 = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
/// Message orders that do not hold: the memory for a read is sent when the peer has room for it,
/// possibly after later writes and messages.
const NOT_BEHIND_READS: u64 = FI_ORDER_WAR | FI_ORDER_SAR | FI_ORDER_RMA_WAR;
/// Bytes of the headers of an operation on remote memory, as the protocol counts them: a base
/// header, two lists of four segments, and datatype and operation.
const HEADERS: usize = 16 + 2 * 4 * 24 + 8;
/// Largest `inject_size`: messages are copied then.
const MOST_INJECT: usize = 16384;
/// Operations of an endpoint of each direction where the application names no number.
const USUAL_SIZE: usize = 1024;
const MOST_TRANSMITS: usize = 16384;
const MOST_RECEIVES: usize = 65536;

/// Returns the endpoints that match.
///
/// # Errors
/// `-FI_ENODATA` if none does, and those of the providers below.
pub fn getinfo(request: &Request<'_>, params: &Params) -> Result<Vec<Info>> {
    let none = Hints::default();
    let wanted = below_hints(request.version, request.hints.unwrap_or(&none));
    let request = Request {
        flags: match params.rescan {
            Some(true) => request.flags | FI_RESCAN,
            Some(false) => request.flags & !FI_RESCAN,
            None => request.flags,
        },
        ..*request
    };
    let usable = |core: &Info| base(core).unwrap_or_default();
    LAYER.offers(&request, &wanted, usable, |hints, _| hints)
}

/// Returns the hints for the providers below.
fn below_hints(api: u32, asked: &Hints) -> Info {
    let mut below = Info {
        caps: BELOW_CAPS,
        mode: BELOW_MODES,
        ..LAYER.hints_below(asked)
    };
    below.ep.ep_type = FI_EP_DGRAM;
    let none = DomainAttr::default();
    let domain = asked.domain.as_ref().unwrap_or(&none);
    below.domain = DomainAttr {
        name: domain.name.clone(),
        // All objects of an endpoint below are used under one lock.
        threading: match domain.threading {
            FI_THREAD_DOMAIN => FI_THREAD_DOMAIN,
            _ => FI_THREAD_COMPLETION,
        },
        control_progress: FI_PROGRESS_MANUAL,
        data_progress: FI_PROGRESS_MANUAL,
        mr_mode: match api < version(1, 5) {
            true => 0,
            false => BELOW_MR_MODES,
        },
        ..DomainAttr::default()
    };
    below
}

/// Bytes of the longest datagram that is used over an endpoint below like this one, without the
/// prefix of the provider below.
pub fn mtu(core: &Info) -> usize {
    let longest = core.ep.max_msg_size.min(MAX_MTU);
    longest.saturating_sub(prefix(core))
}

/// Bytes at the beginning of each buffer that the provider below uses itself.
pub fn prefix(core: &Info) -> usize {
    match core.mode & FI_MSG_PREFIX {
        0 => 0,
        _ => core.ep.msg_prefix_size,
    }
}

/// Returns the size limits of operations over an endpoint below like this one.
pub fn sizes(core: &Info) -> Sizes {
    Sizes {
        inject: MOST_INJECT,
        atomic: atomic(core),
        message: Sizes::LONGEST,
    }
}

/// Most bytes of the operands of an atomic operation, which is one datagram.
pub fn atomic(core: &Info) -> usize {
    mtu(core).saturating_sub(HEADERS)
}

/// Returns the attributes of an endpoint over this one below; `None` if its datagrams are too short.
pub fn base(core: &Info) -> Option<Base> {
    if mtu(core) < MIN_MTU {
        return None;
    }
    let mut info = attributes::with_devices(attributes::rdm(LAYER.0, VERSION, sizes(core)));
    info.caps |= REACH;
    info.mode = core.mode & !BELOW_MODES;
    info.addr_format = core.addr_format;
    info.tx.op_flags &= !FI_COMMIT_COMPLETE;
    info.tx.msg_order &= !NOT_BEHIND_READS;
    info.rx.msg_order = info.tx.msg_order;
    info.tx.size = MOST_TRANSMITS;
    info.rx.size = MOST_RECEIVES;
    info.ep.protocol = FI_PROTO_RXD;
    info.ep.protocol_version = 1;
    info.ep.max_order_war_size = 0;
    info.domain = DomainAttr {
        name: core.domain.name.clone(),
        caps: info.domain.caps & !REACH | core.domain.caps & REACH,
        mr_mode: MR_BASIC | MR_SCALABLE,
        max_ep_srx_ctx: 0,
        ..info.domain
    };
    info.fabric = FabricAttr {
        name: core.fabric.name.clone(),
        prov_version: VERSION,
        ..FabricAttr::default()
    };
    Some(Base {
        limits: info,
        tx_size: USUAL_SIZE,
        rx_size: USUAL_SIZE,
        inject_size: atomic(core).clamp(1, MOST_INJECT),
        progress: FI_PROGRESS_MANUAL,
    })
}

/// Returns the endpoint below for an endpoint with these attributes: one that tells the sources of
/// datagrams, if there is one.
///
/// # Errors
/// `-FI_ENODATA` if it does not exist any more, and those of the providers below.
pub fn below(api: u32, info: &Info, provider: Option<&str>) -> Result<Info> {
    let with = |caps: u64| {
        one_below(api, info, provider, |hints| {
            let mut wanted = below_hints(api, hints);
            wanted.caps |= caps;
            wanted
        })
    };
    match with(FI_SOURCE) {
        Err(Errno::ENODATA) => with(0),
        found => found,
    }
}

/// Returns the address by which others reach an endpoint that is bound to every address, as one below
/// like this one is: that of an interface, with port 0.
///
/// # Errors
/// `-FI_ENODATA` if there is none, and those of the providers below.
pub fn host_address(core: &Info) -> Result<Vec<u8>> {
    let info = Info {
        src_addr: Vec::new(),
        ..core.clone()
    };
    let api = core.fabric.api_version.max(version(1, 5));
    let found = one_below(api, &info, None, |hints| below_hints(api, hints))?;
    Ok(found.src_addr)
}

/// Returns the endpoints below of a fabric.
///
/// # Errors
/// `-FI_ENODATA` if there are none, and those of the providers below.
pub fn below_of_fabric(attr: &FabricAttr) -> Result<Vec<Info>> {
    all_below(attr, below_hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(longest: usize, prefix: usize) -> Info {
        let mut core = Info::default();
        core.ep.max_msg_size = longest;
        core.ep.msg_prefix_size = prefix;
        core.mode = if prefix == 0 { 0 } else { FI_MSG_PREFIX };
        core
    }

    #[test]
    fn datagrams_are_as_long_as_those_of_the_c_library() {
        assert_eq!(mtu(&core(1472, 0)), 1472);
        assert_eq!(mtu(&core(65507, 0)), 4096);
        assert_eq!(mtu(&core(4096, 40)), 4056);
        assert_eq!(atomic(&core(1472, 0)), 1256);
        let offered = base(&core(1472, 0)).unwrap();
        assert_eq!(offered.inject_size, 1256);
        assert_eq!(offered.limits.ep.protocol, FI_PROTO_RXD);
    }

    #[test]
    fn over_datagrams_without_room_for_the_headers_nothing_is_offered() {
        assert!(base(&core(MIN_MTU - 1, 0)).is_none());
        assert!(base(&core(MIN_MTU + 39, 40)).is_none());
        assert!(base(&core(MIN_MTU + 40, 40)).is_some());
    }
}
