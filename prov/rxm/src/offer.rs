//! What rxm offers over the providers below (fi_getinfo(3)): the endpoints below that it accepts,
//! and the endpoints that it makes of them.

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::resolve::{Query, resolve};
use prov_base::sockaddr;
use prov_message::{Sizes, attributes};
use prov_util::attr::{Base, DomainAttr, FabricAttr, Hints, Info, MR_BASIC, MR_SCALABLE, Request};
use prov_util::attr::{MODE_BUFFERED_RECV, MODE_LOCAL_MR, is_basic, is_rma_target, version};
use prov_util::below::offers::{Layer, REACH, all_below, one_below};

use crate::VERSION;
use crate::params::Params;
use crate::wire::packet::HEAD;

/// The capabilities that endpoints below must have: long messages are read or written.
const BELOW_CAPS: u64 =
    FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Registration modes of the provider below that this provider handles itself.
const BELOW_MR_MODES: i32 = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
/// Modes of the provider below that this provider handles itself.
const BELOW_MODES: u64 = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA | MODE_LOCAL_MR;
/// Orders that do not hold with atomic operations: peers' writes and reads do not wait for atomic
/// operations, which are performed when their packets are handled.
const NOT_WITH_ATOMICS: u64 =
    FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_SAR | FI_ORDER_SAW;
/// Orders among atomic operations: they are performed in the order of their packets.
const ATOMIC_ORDER: u64 =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
/// Limit of the size of a transmit context, in operations: the C library's.
const MOST_TRANSMITS: usize = 16384;
/// Limit of the size of a receive context, in operations: the C library's.
const MOST_RECEIVES: usize = 65536;
/// This provider as a layer.
const LAYER: Layer = Layer("ofi_rxm");

/// Returns the endpoints that match.
///
/// # Errors
/// `-FI_ENODATA` if none does, and those of the providers below.
pub fn getinfo(request: &Request<'_>, params: &Params) -> Result<Vec<Info>> {
    let wanted = below_hints(request.version, request.hints, params);
    let has_atomics = request
        .hints
        .is_some_and(|hints| hints.caps & FI_ATOMIC != 0);
    let in_place = in_place(request.version, request.hints);
    let base = |core: &Info| {
        let mut base = base(core, has_atomics, params);
        base.limits.mode |= in_place;
        base
    };
    let (request, port) = without_wildcard(request)?;
    let mut offers = LAYER.offers(&request, &wanted, base, within)?;
    if let Some(port) = port {
        for info in &mut offers {
            info.src_addr = sockaddr::at_port(&info.src_addr, port);
        }
    }
    Ok(offers)
}

/// Converts a request for a port of this host without a node: endpoints need the address of an
/// interface, since peers get it.
fn without_wildcard<'a>(request: &Request<'a>) -> Result<(Request<'a>, Option<u16>)> {
    let (None, Some(service), true) = (
        request.node,
        request.service,
        request.flags & FI_SOURCE != 0,
    ) else {
        return Ok((*request, None));
    };
    let found = resolve(&Query {
        node: None,
        service: Some(service),
        family: 0,
        passive: true,
        numeric: false,
    })?;
    let port = found.first().ok_or(Errno::ENODATA)?.port();
    let bare = Request {
        service: None,
        flags: request.flags & !FI_SOURCE,
        ..*request
    };
    Ok((bare, Some(port)))
}

/// Returns the hints without values that exclude nothing: atomic operations that only the transmit
/// and receive attributes name, and order sizes beyond the limits.
fn within(mut hints: Hints, limits: &Info) -> Hints {
    if hints.caps & FI_ATOMIC == 0 {
        if let Some(tx) = &mut hints.tx {
            tx.caps &= !FI_ATOMIC;
        }
        if let Some(rx) = &mut hints.rx {
            rx.caps &= !FI_ATOMIC;
        }
    }
    if let Some(ep) = &mut hints.ep {
        let narrow = |asked: &mut usize, limit: usize| *asked = (*asked).min(limit);
        narrow(&mut ep.max_order_raw_size, limits.ep.max_order_raw_size);
        narrow(&mut ep.max_order_war_size, limits.ep.max_order_war_size);
        narrow(&mut ep.max_order_waw_size, limits.ep.max_order_waw_size);
    }
    hints
}

/// Returns the mode `FI_BUFFERED_RECV`, only for applications that ask for it: they post no
/// receives. An application that accepts all modes (`~0`) may not know it, and later interface
/// versions do not have it.
fn in_place(api: u32, hints: Option<&Hints>) -> u64 {
    let asked = hints.map_or(0, |hints| hints.mode);
    match api < version(2, 0) && asked != u64::MAX {
        true => asked & MODE_BUFFERED_RECV,
        false => 0,
    }
}

/// Returns whether packets arrive through one shared receive context, over a provider with this
/// name.
fn is_shared(params: &Params, provider: Option<&str>) -> bool {
    let is_tcp = |name: &str| name.to_ascii_lowercase().contains("tcp");
    params.use_srx.unwrap_or(provider.is_none_or(is_tcp))
}

/// Returns the hints for the providers below.
fn below_hints(api: u32, hints: Option<&Hints>, params: &Params) -> Info {
    let none = Hints::default();
    let asked = hints.unwrap_or(&none);
    let sides = [
        asked.tx.as_ref().map(|tx| tx.caps),
        asked.rx.as_ref().map(|rx| rx.caps),
    ];
    let sides = sides.into_iter().flatten();
    let caps = sides.fold(asked.caps, |all, caps| all | caps);
    let mut below = Info {
        // Accesses of peers are counted below.
        caps: BELOW_CAPS | asked.caps & FI_RMA_EVENT | caps & FI_HMEM,
        mode: BELOW_MODES,
        ..LAYER.hints_below(asked)
    };
    below.ep.ep_type = FI_EP_MSG;
    below.tx.size = params.below_tx_size();
    // All operations are posted to the peer's connection in order.
    let order = asked.tx.as_ref().map_or(0, |tx| tx.msg_order);
    below.tx.msg_order = order & attributes::BEHIND_MESSAGES;
    let provider = LAYER.named_below(asked);
    if is_shared(params, provider.as_deref()) {
        below.ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
        below.rx.size = params.below_rx_size(true);
    } else {
        below.rx.size = params.below_rx_size(false);
    }
    below.domain = domain_hints(api, asked, params);
    below
}

fn domain_hints(api: u32, asked: &Hints, params: &Params) -> DomainAttr {
    let none = DomainAttr::default();
    let domain = asked.domain.as_ref().unwrap_or(&none);
    // Calls to one endpoint below are serialised by this provider. Calls to two of them are not,
    // unless the application serialises its calls and no progress thread is used.
    let is_auto = [domain.data_progress, domain.control_progress].contains(&FI_PROGRESS_AUTO)
        || params.data_auto_progress;
    let is_single = domain.threading == FI_THREAD_DOMAIN && !is_auto;
    // Below, what has no descriptor is found by its address.
    let asked_mode = domain.mr_mode & !FI_MR_HMEM;
    let mr_mode = if domain.mr_mode & (MR_BASIC | MR_SCALABLE) != 0 {
        domain.mr_mode
    } else if is_basic(asked.caps, domain.mr_mode) {
        MR_BASIC
    } else if api < version(1, 5) {
        0
    } else if asked.domain.is_none() || !is_rma_target(asked.caps) {
        BELOW_MR_MODES
    } else {
        asked_mode | FI_MR_LOCAL
    };
    DomainAttr {
        name: domain.name.clone(),
        threading: match is_single {
            true => FI_THREAD_DOMAIN,
            false => FI_THREAD_SAFE,
        },
        control_progress: FI_PROGRESS_MANUAL,
        data_progress: FI_PROGRESS_MANUAL,
        resource_mgmt: FI_RM_ENABLED,
        mr_mode,
        ..DomainAttr::default()
    }
}

/// Returns the kinds of endpoints that can be opened over endpoints below like this one.
pub fn bases(core: &Info, params: &Params) -> Vec<Base> {
    vec![base(core, false, params), base(core, true, params)]
}

/// Default of `inject_size`: what the endpoint below injects, since longer messages are copied.
fn usual_inject(core: &Info, params: &Params) -> usize {
    // If memory has to be registered, copying is cheaper.
    let is_copied = core.domain.mr_mode & FI_MR_LOCAL != 0 || core.mode & MODE_LOCAL_MR != 0;
    match core.tx.inject_size.checked_sub(HEAD) {
        Some(inject @ 1..) if !is_copied => inject.min(params.buffer_size),
        _ => params.buffer_size,
    }
}

/// Returns the size limits of operations over an endpoint below like this one.
pub fn sizes(core: &Info, params: &Params) -> Sizes {
    Sizes {
        inject: params.buffer_size,
        atomic: params.atomic(),
        message: Sizes::LONGEST.min(core.ep.max_msg_size.max(1)),
    }
}

/// Returns the attributes of an endpoint over this one below, with atomic operations or with an
/// order between all others.
fn base(core: &Info, has_atomics: bool, params: &Params) -> Base {
    let info = attributes::rdm(LAYER.0, VERSION, sizes(core, params));
    let mut info = attributes::with_contexts(info);
    let gone = FI_RMA_EVENT & !core.caps | if has_atomics { 0 } else { FI_ATOMIC };
    if core.caps & FI_HMEM != 0 && core.domain.mr_mode & (FI_MR_HMEM | FI_MR_LOCAL) == 0 {
        info = attributes::with_devices(info);
    }
    info.caps &= !gone;
    info.caps |= REACH;
    info.mode = core.mode & !BELOW_MODES;
    info.addr_format = core.addr_format;
    info.tx.caps &= !gone;
    info.rx.caps &= !gone;
    info.tx.op_flags &= !FI_COMMIT_COMPLETE;
    // A message is in its buffer when it has been matched.
    let mut order = core.tx.msg_order & core.rx.msg_order | FI_ORDER_SAS | ATOMIC_ORDER;
    if has_atomics {
        order &= !NOT_WITH_ATOMICS;
    }
    info.tx.msg_order = order;
    // Receivers keep it, whatever senders ask for.
    info.rx.msg_order = order | attributes::BEHIND_MESSAGES;
    info.tx.size = MOST_TRANSMITS;
    info.rx.size = MOST_RECEIVES;
    let narrow = |limit: &mut usize, below: usize| *limit = (*limit).min(below.max(1));
    narrow(&mut info.tx.iov_limit, core.tx.iov_limit);
    narrow(&mut info.tx.rma_iov_limit, core.tx.rma_iov_limit);
    narrow(&mut info.rx.iov_limit, core.rx.iov_limit);
    info.ep.protocol = FI_PROTO_RXM;
    info.ep.protocol_version = 1;
    let ordered = |below: usize| if has_atomics { 0 } else { below };
    info.ep.max_order_raw_size = ordered(core.ep.max_order_raw_size);
    info.ep.max_order_war_size = ordered(core.ep.max_order_war_size);
    info.ep.max_order_waw_size = ordered(core.ep.max_order_waw_size);
    info.domain = DomainAttr {
        name: core.domain.name.clone(),
        caps: info.domain.caps & !REACH | core.domain.caps & REACH,
        mr_mode: mr_mode(core),
        mr_key_size: core.domain.mr_key_size,
        cq_data_size: info.domain.cq_data_size.min(core.domain.cq_data_size),
        max_ep_srx_ctx: 0,
        mr_iov_limit: info
            .domain
            .mr_iov_limit
            .min(core.domain.mr_iov_limit.max(1)),
        ..info.domain
    };
    info.fabric = FabricAttr {
        name: core.fabric.name.clone(),
        prov_version: VERSION,
        ..FabricAttr::default()
    };
    Base {
        limits: info,
        tx_size: params.tx_size,
        rx_size: params.rx_size,
        inject_size: usual_inject(core, params),
        progress: FI_PROGRESS_UNSPEC,
    }
}

/// Returns the registration mode for applications: that of the provider below, without what this
/// provider handles itself.
fn mr_mode(core: &Info) -> i32 {
    match core.domain.mr_mode {
        MR_BASIC => MR_BASIC,
        MR_SCALABLE => MR_SCALABLE,
        mode => match mode & !FI_MR_LOCAL {
            0 => MR_BASIC | MR_SCALABLE,
            required => required | MR_BASIC,
        },
    }
}

/// Returns the endpoint below for an endpoint with these attributes.
///
/// # Errors
/// `-FI_ENODATA` if it does not exist any more, and those of the providers below.
pub fn below(api: u32, info: &Info, provider: Option<&str>, params: &Params) -> Result<Info> {
    one_below(api, info, provider, |hints| {
        below_hints(api, Some(hints), params)
    })
}

/// Returns the endpoints below of a fabric.
///
/// # Errors
/// `-FI_ENODATA` if there are none, and those of the providers below.
pub fn below_of_fabric(attr: &FabricAttr, params: &Params) -> Result<Vec<Info>> {
    let with = |caps| {
        all_below(attr, |api, hints| {
            let mut below = below_hints(api, Some(hints), params);
            below.caps |= caps;
            // Endpoints may be opened with it.
            below.tx.msg_order = attributes::BEHIND_MESSAGES;
            below
        })
    };
    let mut found = with(0)?;
    // Only offered to who asks for it.
    for caps in [FI_RMA_EVENT, FI_HMEM, FI_RMA_EVENT | FI_HMEM] {
        found.extend(with(caps).unwrap_or_default());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use prov_base::buffer::IOV_LIMIT;
    use prov_util::attr::MR_BASIC_BITS;

    use super::*;

    fn modes_of(api: u32, mode: u64) -> Vec<u64> {
        let hints = Hints::from(Info {
            mode,
            ..Info::default()
        });
        let request = Request {
            version: api,
            node: None,
            service: None,
            flags: 0,
            hints: Some(&hints),
            target: "",
        };
        let found = getinfo(&request, &Params::default()).unwrap();
        found.iter().map(|info| info.mode).collect()
    }

    #[test]
    fn messages_are_received_in_place_if_only_that_is_requested() {
        let asked = MODE_BUFFERED_RECV | FI_CONTEXT;
        for (api, mode, expected) in [
            (version(1, 20), asked, true),
            (version(1, 20), FI_CONTEXT, false),
            (version(1, 20), u64::MAX, false),
            (version(2, 0), asked, false),
            (version(2, 0), u64::MAX, false),
        ] {
            let found = modes_of(api, mode);
            assert!(!found.is_empty());
            for found in found {
                assert_eq!(found & MODE_BUFFERED_RECV != 0, expected, "{mode:#x}");
            }
        }
    }

    #[test]
    fn regions_have_virtual_addresses_with_collective_operations() {
        for (caps, expected) in [(FI_COLLECTIVE, MR_BASIC_BITS), (0, 0)] {
            let hints = Hints::from(Info {
                caps: FI_MSG | FI_RMA | caps,
                domain: DomainAttr {
                    mr_mode: MR_BASIC_BITS | FI_MR_LOCAL,
                    ..DomainAttr::default()
                },
                ..Info::default()
            });
            let request = Request {
                version: version(1, 20),
                node: None,
                service: None,
                flags: 0,
                hints: Some(&hints),
                target: "",
            };
            let params = Params::default();
            let found = getinfo(&request, &params).unwrap();
            assert!(!found.is_empty());
            for info in found {
                assert_eq!(info.domain.mr_mode, expected, "{caps:#x}");
                let core = below(request.version, &info, None, &params).unwrap();
                assert_eq!(core.domain.mr_mode == MR_BASIC, expected != 0, "{caps:#x}");
            }
        }
    }

    #[test]
    fn a_region_has_no_more_pieces_than_the_provider_below_takes() {
        for (below, expected) in [(0, 1), (1, 1), (3, 3), (1000, IOV_LIMIT)] {
            let mut core = Info::default();
            core.domain.mr_iov_limit = below;
            for base in bases(&core, &Params::default()) {
                assert_eq!(base.limits.domain.mr_iov_limit, expected, "{below}");
            }
        }
    }
}
