//! The attributes that fi_getinfo(3) reports for a provider built from this crate.

use fabric_abi::*;
use prov_base::buffer::IOV_LIMIT;
use prov_util::attr::{
    DomainAttr, EpAttr, FabricAttr, Info, MR_BASIC, MR_SCALABLE, Request, RxAttr, TxAttr,
};

use crate::checks::Sizes;

const TX_CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_COLLECTIVE
    | FI_TRIGGER
    | FI_SEND
    | FI_READ
    | FI_WRITE;
const RX_CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_COLLECTIVE
    | FI_TRIGGER
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RMA_EVENT
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_DIRECTED_RECV;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_SHARED_AV | FI_AV_USER_ID | FI_PEER;

/// The order of reads and writes of remote memory behind messages.
pub const BEHIND_MESSAGES: u64 = FI_ORDER_RAS | FI_ORDER_WAS;

/// Leaves this order out of what is offered to a caller that asks for no order but that of
/// messages: its accesses are carried out without the peer where that is possible, which receives
/// messages at another time, or not any more.
pub fn leave_out_order_behind_messages(request: &Request<'_>, infos: &mut [Info]) {
    let tx = request.hints.and_then(|hints| hints.tx.as_ref());
    if tx.is_none_or(|tx| tx.msg_order & !FI_ORDER_SAS == 0) {
        for info in infos {
            info.tx.msg_order &= !BEHIND_MESSAGES;
        }
    }
}

const TX_FLAGS: u64 = FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_COMMIT_COMPLETE
    | FI_COMPLETION;
const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Every operation takes effect before the next one begins.
const ORDER: u64 = FI_ORDER_RAR
    | FI_ORDER_RAW
    | FI_ORDER_RAS
    | FI_ORDER_WAR
    | FI_ORDER_WAW
    | FI_ORDER_WAS
    | FI_ORDER_SAR
    | FI_ORDER_SAW
    | FI_ORDER_SAS
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// Upper limit for the size of a transmit or receive context (`fi_tx_attr::size`).
const MOST_ENTRIES: usize = 1 << 24;
/// Upper limit for the number of memory regions of a domain (`fi_domain_attr::mr_cnt`).
const MOST_REGIONS: usize = 1 << 24;

/// Attributes of a reliable datagram endpoint for communication within one host, of a provider of
/// this name and version, whose operations take effect in the order in which they are posted. A
/// transport that does not support all of this removes what it lacks.
pub fn rdm(name: &str, version: u32, sizes: Sizes) -> Info {
    let name = || Some(name.to_owned());
    Info {
        caps: TX_CAPS | RX_CAPS | DOMAIN_CAPS,
        tx: TxAttr {
            caps: TX_CAPS,
            op_flags: TX_FLAGS,
            msg_order: ORDER,
            inject_size: sizes.inject,
            size: MOST_ENTRIES,
            iov_limit: IOV_LIMIT,
            rma_iov_limit: IOV_LIMIT,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: RX_CAPS,
            op_flags: RX_FLAGS,
            msg_order: ORDER,
            size: MOST_ENTRIES,
            iov_limit: IOV_LIMIT,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: FI_EP_RDM,
            // The interface knows "no limit" as the largest `size_t`.
            max_msg_size: match sizes.message {
                Sizes::LONGEST => usize::MAX,
                limited => limited,
            },
            max_order_raw_size: usize::MAX,
            max_order_war_size: usize::MAX,
            max_order_waw_size: usize::MAX,
            mem_tag_format: u64::MAX,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: name(),
            caps: DOMAIN_CAPS,
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_AUTO,
            data_progress: FI_PROGRESS_AUTO,
            resource_mgmt: FI_RM_ENABLED,
            mr_mode: MR_BASIC | MR_SCALABLE,
            mr_key_size: size_of::<u64>(),
            av_type: FI_AV_UNSPEC,
            cq_data_size: size_of::<u64>(),
            cq_cnt: 65536,
            ep_cnt: 65536,
            tx_ctx_cnt: 65536,
            rx_ctx_cnt: 65536,
            cntr_cnt: 65536,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            max_ep_stx_ctx: 65536,
            max_ep_srx_ctx: 65536,
            mr_iov_limit: IOV_LIMIT,
            mr_cnt: MOST_REGIONS,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: name(),
            prov_name: name(),
            prov_version: version,
            ..FabricAttr::default()
        },
        ..Info::default()
    }
}

/// A datagram endpoint, likewise, without tags, access to memory and order. `longest` is the
/// longest message.
pub fn datagrams(name: &str, version: u32, longest: usize) -> Info {
    const TX: u64 = FI_MSG | FI_SEND;
    const RX: u64 = FI_MSG | FI_RECV | FI_MULTI_RECV | FI_SOURCE | FI_SOURCE_ERR;
    const DOMAIN: u64 = FI_LOCAL_COMM | FI_SHARED_AV | FI_AV_USER_ID;
    let mut info = rdm(
        name,
        version,
        Sizes {
            inject: longest,
            atomic: 0,
            message: longest,
        },
    );
    info.caps = TX | RX | DOMAIN;
    info.tx.caps = TX;
    // Nobody tells what has become of a datagram.
    info.tx.op_flags = FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_COMPLETION;
    info.rx.caps = RX;
    info.domain.caps = DOMAIN;
    info.domain.cq_data_size = 0;
    info.ep.ep_type = FI_EP_DGRAM;
    (info.tx.msg_order, info.rx.msg_order) = (0, 0);
    info.tx.rma_iov_limit = 0;
    info.ep.max_order_raw_size = 0;
    info.ep.max_order_war_size = 0;
    info.ep.max_order_waw_size = 0;
    info.ep.mem_tag_format = 0;
    info
}

/// Largest number of contexts of each direction of a scalable endpoint: tcp and rxm send a
/// context's index in a field of 8 bits, and each context has a socket and a lane of its own.
pub const MOST_CONTEXTS: usize = 64;

/// The same endpoint, which may be scalable, with several contexts of each direction.
pub fn with_contexts(mut info: Info) -> Info {
    info.caps |= FI_NAMED_RX_CTX;
    info.tx.caps |= FI_NAMED_RX_CTX;
    info.domain.max_ep_tx_ctx = MOST_CONTEXTS;
    info.domain.max_ep_rx_ctx = MOST_CONTEXTS;
    info
}

/// The same endpoint, for memory of devices as well: all bytes of its operations and of registered
/// memory go through [`Iov`](prov_base::buffer::Iov)s.
pub fn with_devices(mut info: Info) -> Info {
    for caps in [&mut info.caps, &mut info.tx.caps, &mut info.rx.caps] {
        *caps |= FI_HMEM;
    }
    info
}

/// The same attributes for an endpoint that uses a shared receive context.
pub fn with_shared_receive(mut info: Info) -> Info {
    info.ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
    info
}
