//! The attributes that fi_getinfo(3) reports.

use fabric_abi::*;
use prov_message::{Sizes, attributes};
use prov_util::attr::{Base, Info};

use crate::VERSION;

const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = FI_MSG | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// The sizes of an endpoint.
pub const SIZES: Sizes = Sizes {
    inject: 64,
    atomic: 8,
    message: 1 << 30,
};

/// Sizes of queues for applications that ask for none.
pub const QUEUE: usize = 256;

/// Returns the kinds of endpoints: connected, with receives of their own or shared ones.
pub fn bases() -> Vec<Base> {
    let mut info = attributes::rdm("sample", VERSION, SIZES);
    info.ep.ep_type = FI_EP_MSG;
    info.ep.mem_tag_format = 0;
    info.addr_format = FI_SOCKADDR_IN;
    info.domain.caps = FI_LOCAL_COMM;
    info.caps = TX_CAPS | RX_CAPS | info.domain.caps;
    info.tx.caps = TX_CAPS;
    info.rx.caps = RX_CAPS;
    info.tx.rma_iov_limit = 1;
    // A write with immediate data takes a receive of the peer.
    info.mode = FI_RX_CQ_DATA;
    info.rx.mode = FI_RX_CQ_DATA;
    info.domain.mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    info.domain.mr_key_size = size_of::<u32>();
    info.domain.mr_iov_limit = 1;
    info.domain.cq_data_size = size_of::<u32>();
    info.domain.data_progress = FI_PROGRESS_MANUAL;
    let shared = attributes::with_shared_receive(info.clone());
    [info, shared].map(base).into()
}

fn base(limits: Info) -> Base {
    Base {
        tx_size: QUEUE,
        rx_size: QUEUE,
        ..Base::from(limits)
    }
}
