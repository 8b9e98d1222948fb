//! What the provider supports, as fi_getinfo(3) reports it.

use fabric_abi::*;
use prov_util::attr::{
    ANY_KEY_SIZE, Base, DomainAttr, EpAttr, FabricAttr, Info, MR_BASIC, MR_SCALABLE, RxAttr, TxAttr,
};
use prov_util::buffer::IOV_LIMIT;

use crate::params::Params;
use crate::provider::VERSION;
use crate::wire;

const TX_CAPS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RMA_EVENT
    | FI_MULTI_RECV;
/// What only endpoints with several peers have.
const SOURCE_CAPS: u64 = FI_SOURCE | FI_DIRECTED_RECV;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV;

/// Messages and writes take effect in the order in which they were posted, and
/// requests for data are taken up in that order.
const ORDER: u64 = FI_ORDER_RAR
    | FI_ORDER_RAW
    | FI_ORDER_WAW
    | FI_ORDER_RAS
    | FI_ORDER_WAS
    | FI_ORDER_SAW
    | FI_ORDER_SAS
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

const TX_FLAGS: u64 = FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_COMMIT_COMPLETE
    | FI_COMPLETION;
const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Entries of a context at most.
const MOST_ENTRIES: usize = 1 << 24;

/// The kinds of endpoints, the one to prefer first.
pub fn bases(params: &Params) -> Vec<Base> {
    let rdm = base(params, FI_EP_RDM);
    let msg = base(params, FI_EP_MSG);
    let shared = |mut base: Base| {
        base.limits.ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
        base.rx_size = params.usual_shared_size();
        base
    };
    let (shared_msg, shared_rdm) = (shared(msg.clone()), shared(rdm.clone()));
    vec![msg, shared_msg, rdm, shared_rdm]
}

fn base(params: &Params, ep_type: fi_ep_type) -> Base {
    let is_rdm = ep_type == FI_EP_RDM;
    let rx_caps = RX_CAPS | if is_rdm { SOURCE_CAPS } else { 0 };
    let limits = Info {
        caps: TX_CAPS | rx_caps | DOMAIN_CAPS,
        addr_format: FI_SOCKADDR_IP,
        tx: TxAttr {
            caps: TX_CAPS,
            op_flags: TX_FLAGS,
            msg_order: ORDER,
            inject_size: params.max_inject,
            size: MOST_ENTRIES,
            iov_limit: IOV_LIMIT,
            rma_iov_limit: IOV_LIMIT,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: rx_caps,
            op_flags: RX_FLAGS,
            msg_order: ORDER,
            size: MOST_ENTRIES,
            iov_limit: IOV_LIMIT,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type,
            protocol: if is_rdm {
                FI_PROTO_XNET
            } else {
                FI_PROTO_SOCK_TCP
            },
            protocol_version: if is_rdm { wire::rdm::VERSION.into() } else { 0 },
            max_msg_size: isize::MAX as usize,
            max_order_raw_size: usize::MAX,
            max_order_waw_size: usize::MAX,
            mem_tag_format: u64::MAX,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            auth_key_size: ANY_KEY_SIZE,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: Some("tcp".into()),
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
            max_ep_srx_ctx: 65536,
            mr_iov_limit: IOV_LIMIT,
            mr_cnt: 0,
            auth_key_size: ANY_KEY_SIZE,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: Some("tcp".into()),
            prov_name: Some("tcp".into()),
            prov_version: VERSION,
            ..FabricAttr::default()
        },
        ..Info::default()
    };
    Base {
        limits,
        tx_size: params.usual_tx_size(ep_type),
        rx_size: params.usual_rx_size(ep_type),
    }
}
