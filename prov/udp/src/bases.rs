//! What the provider supports, as fi_getinfo(3) reports it.

use fabric_abi::*;
use prov_base::sockaddr::SIZE_IN6;
use prov_message::attributes;
use prov_util::attr::{Base, Info, version};

/// Version of the provider, which goes with that of the library: 2.7.0.
pub const VERSION: u32 = version(207, 0);

/// Bytes of the longest message that is promised (`max_msg_size`, `inject_size`): what fits
/// into a packet of Ethernet, with the headers of IPv4 and UDP. Longer ones are sent as far as
/// the system takes them, and reach their peers in several packets or not at all.
pub const LONGEST: usize = 1472;

/// Operations of a kind that an endpoint has at once where the application names no number.
const USUAL_SIZE: usize = 1024;

/// The kinds of endpoints, the one to prefer first.
pub fn bases() -> Vec<Base> {
    let mut info = attributes::datagrams("udp", VERSION, LONGEST);
    info.fabric.name = Some("UDP-IP".into());
    info.addr_format = FI_SOCKADDR_IP;
    info.ep.protocol = FI_PROTO_UDP;
    info.caps |= FI_MULTICAST | FI_REMOTE_COMM;
    info.domain.caps |= FI_REMOTE_COMM;
    info.tx.caps |= FI_MULTICAST;
    info.tx.op_flags |= FI_MULTICAST;
    // The address of a sender that the address vector does not have.
    info.domain.max_err_data = SIZE_IN6;
    let base = |limits: Info| Base {
        limits,
        tx_size: USUAL_SIZE,
        rx_size: USUAL_SIZE,
        inject_size: 0,
        progress: FI_PROGRESS_UNSPEC,
    };
    let shared = attributes::with_shared_receive(info.clone());
    vec![base(info), base(shared)]
}
