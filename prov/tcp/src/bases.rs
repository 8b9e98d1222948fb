//! The capabilities and limits of the provider, as fi_getinfo(3) reports them.

use fabric_abi::*;
use prov_base::buffer::can_write_back;
use prov_message::attributes;
use prov_util::attr::{ANY_KEY_SIZE, Base, Info};

use crate::VERSION;
use crate::params::Params;
use crate::wire;

/// The names under which the engine is a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// fi_tcp(7)
    Tcp,
    /// fi_sockets(7)
    Sockets,
    /// fi_mrail(7), a layer over tcp by its name.
    Mrail,
}

impl Name {
    /// Returns the name of the provider, without that of a layer.
    pub fn text(self) -> &'static str {
        match self {
            Name::Tcp | Name::Mrail => "tcp",
            Name::Sockets => "sockets",
        }
    }
}

/// Version of `FI_PROTO_SOCK_TCP` that the C library's sockets provider offers; its programs may
/// request it.
const SOCKETS_PROTOCOL: u32 = 2;

/// Capabilities of endpoints with several peers only.
const RDM_CAPS: u64 = FI_SOURCE | FI_DIRECTED_RECV | FI_AV_USER_ID | FI_COLLECTIVE;

/// Capabilities that endpoints for datagrams do not have.
const BEYOND_MESSAGES: u64 = FI_RMA
    | FI_ATOMIC
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RMA_EVENT
    | FI_RMA_PMEM
    | FI_COLLECTIVE;

/// Orders that are not kept: read requests are processed in the order of posting, but the data
/// arrives later, when the memory may already have been written to.
const UNORDERED: u64 = FI_ORDER_WAR | FI_ORDER_SAR | FI_ORDER_RMA_WAR;

/// Returns the kinds of endpoints of the provider of this name, the preferred one first.
pub fn bases(name: Name, params: &Params) -> Vec<Base> {
    let rdm = base(name, params, FI_EP_RDM);
    let msg = base(name, params, FI_EP_MSG);
    let shared = |mut base: Base| {
        base.limits.ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
        base.rx_size = params.usual_shared_size();
        base
    };
    match name {
        Name::Tcp => {
            let (shared_msg, shared_rdm) = (shared(msg.clone()), shared(rdm.clone()));
            vec![
                untagged(msg.clone()),
                msg,
                shared_msg,
                scalable(rdm),
                shared_rdm,
            ]
        }
        // As in the C library's provider: endpoints for datagrams, which are reliable too, then
        // reliable datagrams; tags for all endpoints, and shared receive contexts for applications
        // that request them.
        Name::Sockets => {
            let dgram = datagrams(base(name, params, FI_EP_DGRAM));
            vec![scalable(dgram), scalable(rdm), msg]
        }
        Name::Mrail => {
            let mut rdm = scalable(rdm);
            // The framework has checked the name, which may be that of the layer or of both.
            rdm.limits.fabric.prov_name = None;
            vec![rdm]
        }
    }
}

/// Returns the same kind without access to the memory of peers, and without collective operations.
fn datagrams(mut base: Base) -> Base {
    let limits = &mut base.limits;
    for caps in [&mut limits.caps, &mut limits.tx.caps, &mut limits.rx.caps] {
        *caps &= !BEYOND_MESSAGES;
    }
    limits.tx.rma_iov_limit = 0;
    base
}

/// The same kind, which may be a scalable endpoint.
fn scalable(base: Base) -> Base {
    Base {
        limits: attributes::with_contexts(base.limits),
        ..base
    }
}

/// Returns the same kind without tags, which is listed first: connected endpoints of the C library
/// have tags only with a shared receive context, and some applications skip entries that offer
/// more.
fn untagged(mut base: Base) -> Base {
    base.limits.caps &= !FI_TAGGED;
    base.limits.tx.caps &= !FI_TAGGED;
    base.limits.rx.caps &= !FI_TAGGED;
    base
}

fn base(name: Name, params: &Params, ep_type: fi_ep_type) -> Base {
    let is_rdm = ep_type != FI_EP_MSG;
    let mut limits =
        attributes::with_devices(attributes::rdm(name.text(), VERSION, params.sizes()));
    let Info {
        caps,
        tx,
        rx,
        ep,
        domain,
        ..
    } = &mut limits;
    domain.caps |= FI_REMOTE_COMM;
    *caps |= FI_REMOTE_COMM;
    if can_write_back() {
        for caps in [&mut *caps, &mut tx.caps, &mut rx.caps] {
            *caps |= FI_RMA_PMEM;
        }
    }
    if !is_rdm {
        for caps in [&mut tx.caps, &mut rx.caps, &mut *caps] {
            *caps &= !RDM_CAPS;
        }
    }
    if name == Name::Sockets {
        *caps |= FI_FENCE;
        tx.caps |= FI_FENCE;
    }
    tx.msg_order &= !UNORDERED;
    rx.msg_order &= !UNORDERED;
    ep.max_order_war_size = 0;
    ep.ep_type = ep_type;
    (ep.protocol, ep.protocol_version) = match (name, is_rdm) {
        (Name::Tcp | Name::Mrail, true) => (FI_PROTO_XNET, wire::rdm::VERSION.into()),
        (Name::Tcp | Name::Mrail, false) => (FI_PROTO_SOCK_TCP, 0),
        (Name::Sockets, _) => (FI_PROTO_SOCK_TCP, SOCKETS_PROTOCOL),
    };
    ep.auth_key_size = ANY_KEY_SIZE;
    domain.auth_key_size = ANY_KEY_SIZE;
    limits.addr_format = FI_SOCKADDR_IP;
    Base {
        limits,
        tx_size: params.usual_tx_size(ep_type),
        rx_size: params.usual_rx_size(ep_type),
        inject_size: 0,
        progress: FI_PROGRESS_UNSPEC,
    }
}
