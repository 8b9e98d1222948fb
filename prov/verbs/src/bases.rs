//! The capabilities and limits of the provider, as fi_getinfo(3) reports them: kinds of endpoints,
//! on each device that exists.

use std::sync::{Mutex, PoisonError};

use fabric_abi::*;
use prov_base::errno::Result;
use prov_device::modes;
use prov_util::attr::{Base, DomainAttr, EpAttr, FabricAttr, Info, MR_BASIC, Nic, RxAttr, TxAttr};

use crate::VERSION;
use crate::device::{
    CompletionQueue, Context, Limits, PREFIX, PairConfig, Pairing, Port, ProtectionDomain,
    QueuePair, contexts,
};
use crate::params::{Params, is_listed};

const MSG_TX_CAPS: u64 = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE;
const MSG_RX_CAPS: u64 = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
const DGRAM_TX_CAPS: u64 = FI_MSG | FI_SEND;
const DGRAM_RX_CAPS: u64 = FI_MSG | FI_RECV;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

const TX_FLAGS: u64 = FI_INJECT | FI_INJECT_COMPLETE | FI_COMPLETION;

/// All operations of a peer take effect in their order, except for reads, whose data arrives later.
const ORDER: u64 = FI_ORDER_RAR
    | FI_ORDER_RAW
    | FI_ORDER_RAS
    | FI_ORDER_WAW
    | FI_ORDER_WAS
    | FI_ORDER_SAW
    | FI_ORDER_SAS
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAW;

/// Limit that is reported for objects in software, which have no real bound.
const MANY: usize = 65536;
/// Largest number of contexts of a domain.
const CONTEXTS: usize = 1024;

/// The kinds of endpoints, each with a domain of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Connected; receives are the endpoint's own or shared.
    Connected,
    /// Connected by XRC; the receives are shared.
    Xrc,
    /// For datagrams.
    Datagrams,
}

/// The suffix of the device name in the name of a domain for datagrams.
const DATAGRAMS_SUFFIX: &str = "-dgram";
/// The suffix in the name of a domain for XRC.
const XRC_SUFFIX: &str = "-xrc";

/// A port of a device.
#[derive(Clone, Debug)]
struct Device {
    context: Context,
    limits: Limits,
    /// The port's number.
    number: u8,
    port: Port,
    /// Largest number of bytes of an inline request.
    inline: usize,
    /// The same for XRC; `None` if the device does not support XRC.
    inline_xrc: Option<usize>,
    nic: Option<Nic>,
}

impl Device {
    /// Returns the name of the domain, which does not depend on the state of a link. Connections
    /// choose the port themselves, so that one domain has all ports; datagrams leave through the
    /// port of their endpoint.
    fn domain_of(&self, kind: Kind) -> String {
        let name = self.context.name();
        match kind {
            Kind::Connected => name,
            Kind::Xrc => xrc_domain(&name),
            Kind::Datagrams => datagrams_domain(&name, self.number),
        }
    }
}

/// Returns the name of the domain for datagrams of a device's port.
pub fn datagrams_domain(device: &str, port: u8) -> String {
    match port {
        1 => format!("{device}{DATAGRAMS_SUFFIX}"),
        port => format!("{device}{DATAGRAMS_SUFFIX}-{port}"),
    }
}

/// Returns the name of the domain for XRC of a device.
pub fn xrc_domain(device: &str) -> String {
    format!("{device}{XRC_SUFFIX}")
}

/// The device and port of a domain.
pub struct DevicePort {
    /// The device.
    pub context: Context,
    /// The number of its port.
    pub number: u8,
    /// The port.
    pub port: Port,
    /// Largest number of bytes of an inline request of XRC, if the domain is for XRC.
    pub inline_xrc: Option<usize>,
}

/// Returns the device and port of the domain with this name, whether or not its link is up.
pub fn place_of(params: &Params, domain: &str) -> Option<DevicePort> {
    let devices = devices(params);
    let found = find(&devices, domain)?;
    Some(DevicePort {
        context: found.context,
        number: found.number,
        port: found.port,
        inline_xrc: found
            .inline_xrc
            .filter(|_| found.domain_of(Kind::Xrc) == domain),
    })
}

fn find<'a>(devices: &'a [Device], domain: &str) -> Option<&'a Device> {
    let mut connected = one_each(devices);
    let connected = connected.find(|device| {
        device.domain_of(Kind::Connected) == domain
            || device.inline_xrc.is_some() && device.domain_of(Kind::Xrc) == domain
    });
    let mut datagrams = devices.iter();
    let datagrams = datagrams.find(|device| device.domain_of(Kind::Datagrams) == domain);
    connected.or(datagrams)
}

/// Returns the port that represents each device: the first one that is active, or else the first
/// one.
fn one_each(devices: &[Device]) -> impl Iterator<Item = &Device> {
    let ports = devices.chunk_by(|one, next| one.context == next.context);
    ports.filter_map(|ports| {
        let mut active = ports.iter().filter(|device| device.port.is_active);
        active.next().or(ports.first())
    })
}

/// Returns the kinds of endpoints on all devices whose links are up, the preferred kind first.
pub fn bases(params: &Params) -> Vec<Base> {
    let mut devices = devices(params);
    devices.retain(|device| device.port.is_active);
    bases_on(params, &devices)
}

fn bases_on(params: &Params, devices: &[Device]) -> Vec<Base> {
    let connected = one_each(devices).map(|device| base(params, device, Kind::Connected));
    let sharing = one_each(devices).filter(|device| device.limits.shared_queues != 0);
    let shared = sharing.map(|device| {
        let mut base = base(params, device, Kind::Connected);
        base.limits.ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
        base
    });
    // iWARP devices have no datagrams.
    let on_datagrams = devices.iter().filter(|device| !device.context.is_iwarp());
    let datagrams = on_datagrams.map(|device| base(params, device, Kind::Datagrams));
    let with_xrc = one_each(devices).filter(|device| device.inline_xrc.is_some());
    let xrc = with_xrc.map(|device| base(params, device, Kind::Xrc));
    let rc = connected.chain(shared);
    let connected: Vec<Base> = match params.prefer_xrc {
        true => xrc.chain(rc).collect(),
        false => rc.chain(xrc).collect(),
    };
    connected.into_iter().chain(datagrams).collect()
}

/// Returns the kinds of endpoints that may be opened, including those on devices whose link is
/// down. The modes are the caller's responsibility.
pub fn openable(params: &Params) -> Vec<Base> {
    modes::openable(bases_on(params, &devices(params)))
}

/// Rewrites the attributes of a connected endpoint on any device for this one.
pub fn adapt(info: &mut Info, params: &Params, context: Context) {
    let devices = devices(params);
    let Some(device) = one_each(&devices).find(|known| known.context == context) else {
        return;
    };
    let kind = match info.ep.protocol {
        FI_PROTO_RDMA_CM_IB_XRC => Kind::Xrc,
        _ => Kind::Connected,
    };
    let limits = base(params, device, kind).limits;
    info.domain.name = limits.domain.name;
    info.fabric.name = limits.fabric.name;
    info.tx.inject_size = info.tx.inject_size.min(limits.tx.inject_size);
    info.ep.max_msg_size = limits.ep.max_msg_size;
    info.nic = limits.nic;
}

/// Returns the ports of the devices that may be used, device by device.
fn devices(params: &Params) -> Vec<Device> {
    let listed = |context: &&Context| is_listed(params.device_name.as_deref(), &context.name());
    let usable = contexts().iter().filter(listed);
    let usable = usable.flat_map(|&context| {
        look(params, context).unwrap_or_else(|error| {
            log::info!(target: crate::LOG.core, "{context:?} is of no use: {error}");
            Vec::new()
        })
    });
    usable.collect()
}

/// Returns the ports of a device.
fn look(params: &Params, context: Context) -> Result<Vec<Device>> {
    let limits = context.limits()?;
    let inline_of = |pairing| inline(params, context, pairing);
    let inline_xrc = match limits.has_xrc {
        false => None,
        true => inline_of(Pairing::Initiator)
            .inspect_err(|error| {
                log::info!(target: crate::LOG.core, "{context:?} is of no use for XRC: {error}");
            })
            .ok(),
    };
    let inline = inline_of(Pairing::Connected)?;
    let look = |number| {
        Ok(Device {
            context,
            limits,
            number,
            port: context.port(number)?,
            inline,
            inline_xrc,
            nic: context.nic(number).ok(),
        })
    };
    (1..=limits.ports).map(look).collect()
}

/// Returns the largest number of bytes of an inline request of a device, up to the number that the
/// user wants. A device reports it only when a queue pair is created. Determined once for a device.
fn inline(params: &Params, context: Context, pairing: Pairing) -> Result<usize> {
    static KNOWN: Mutex<Vec<(Context, Pairing, usize)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |known: &&(Context, Pairing, usize)| known.0 == context && known.1 == pairing;
    if let Some(&(_, _, inline)) = known.iter().find(is_it) {
        return Ok(inline);
    }
    let inline = try_inline(params, context, pairing)?;
    known.push((context, pairing, inline));
    Ok(inline)
}

fn try_inline(params: &Params, context: Context, pairing: Pairing) -> Result<usize> {
    /// More than any device supports.
    const MOST: usize = 1 << 14;
    let pd = ProtectionDomain::new(context)?;
    let queue = CompletionQueue::new(context, 1, &[])?;
    let mut inline = match params.inline_size {
        0 => MOST,
        wanted => wanted,
    };
    loop {
        let made = QueuePair::new(
            &pd,
            &PairConfig {
                pairing,
                send_queue: &queue,
                receive_queue: &queue,
                shared: None,
                sends: 1,
                receives: 1,
                send_pieces: 1,
                receive_pieces: 1,
                inline,
            },
        );
        match made {
            Ok(pair) if params.inline_size == 0 => return Ok(pair.inline().max(inline)),
            Ok(_) => return Ok(inline),
            Err(error) if inline == 0 => return Err(error),
            Err(_) => inline /= 2,
        }
    }
}

/// Returns the name of the network: ports of one subnet can reach each other.
fn fabric_of(params: &Params, device: &Device) -> String {
    if device.context.is_iwarp() {
        return "Ethernet-iWARP".to_owned();
    }
    let gid = device
        .context
        .gid(device.number, params.gid_idx)
        .unwrap_or_default();
    format!("IB-{:#018x}", gid.subnet_prefix())
}

fn base(params: &Params, device: &Device, kind: Kind) -> Base {
    let Device { limits, port, .. } = device;
    let is_connected = kind != Kind::Datagrams;
    let atomic = match limits.has_atomics && is_connected {
        true => FI_ATOMIC,
        false => 0,
    };
    let (tx_caps, rx_caps) = match kind {
        Kind::Connected | Kind::Xrc => (MSG_TX_CAPS | atomic, MSG_RX_CAPS | atomic),
        Kind::Datagrams => (DGRAM_TX_CAPS, DGRAM_RX_CAPS),
    };
    // An iWARP write completes when it has been sent.
    let flags = match device.context.is_iwarp() {
        true => TX_FLAGS,
        false => TX_FLAGS | FI_TRANSMIT_COMPLETE,
    };
    let (mode, prefix) = match kind {
        Kind::Connected | Kind::Xrc => (FI_RX_CQ_DATA, 0),
        Kind::Datagrams => (FI_MSG_PREFIX, PREFIX),
    };
    let longest = match kind {
        Kind::Connected | Kind::Xrc => port.longest_message,
        Kind::Datagrams => port.mtu,
    };
    let order = if is_connected { ORDER } else { 0 };
    let limits = Info {
        caps: tx_caps | rx_caps | DOMAIN_CAPS,
        mode,
        addr_format: match kind {
            Kind::Connected | Kind::Xrc => FI_SOCKADDR,
            Kind::Datagrams => FI_ADDR_IB_UD,
        },
        tx: TxAttr {
            caps: tx_caps,
            mode: mode & FI_MSG_PREFIX,
            op_flags: flags,
            msg_order: order,
            inject_size: match kind {
                Kind::Xrc => device.inline_xrc.unwrap_or(0),
                _ => device.inline,
            },
            size: limits.requests_per_pair,
            iov_limit: params.tx_iov_limit.min(limits.pieces),
            rma_iov_limit: if is_connected { 1 } else { 0 },
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: rx_caps,
            mode,
            op_flags: FI_COMPLETION,
            msg_order: order,
            size: limits.requests_per_pair,
            iov_limit: params.rx_iov_limit.min(limits.pieces),
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: match kind {
                Kind::Connected | Kind::Xrc => FI_EP_MSG,
                Kind::Datagrams => FI_EP_DGRAM,
            },
            protocol: match kind {
                Kind::Connected if device.context.is_iwarp() => FI_PROTO_IWARP,
                Kind::Connected => FI_PROTO_RDMA_CM_IB_RC,
                Kind::Xrc => FI_PROTO_RDMA_CM_IB_XRC,
                Kind::Datagrams => FI_PROTO_IB_UD,
            },
            protocol_version: 1,
            max_msg_size: longest,
            msg_prefix_size: prefix,
            max_order_raw_size: if is_connected { longest } else { 0 },
            max_order_waw_size: if is_connected { longest } else { 0 },
            tx_ctx_cnt: 1,
            rx_ctx_cnt: match kind {
                Kind::Xrc => FI_SHARED_CONTEXT,
                _ => 1,
            },
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: Some(device.domain_of(kind)),
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_AUTO,
            data_progress: FI_PROGRESS_AUTO,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_UNSPEC,
            mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | MR_BASIC,
            mr_key_size: size_of::<u32>(),
            cq_data_size: size_of::<u32>(),
            cq_cnt: limits.completion_queues.min(MANY),
            ep_cnt: limits.pairs,
            tx_ctx_cnt: CONTEXTS,
            rx_ctx_cnt: CONTEXTS,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            max_ep_srx_ctx: if is_connected {
                limits.shared_queues
            } else {
                0
            },
            cntr_cnt: MANY,
            mr_iov_limit: 1,
            caps: DOMAIN_CAPS,
            max_err_data: u8::MAX.into(),
            mr_cnt: limits.regions,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: Some(fabric_of(params, device)),
            prov_name: Some("verbs".to_owned()),
            prov_version: VERSION,
            ..FabricAttr::default()
        },
        nic: device.nic.clone(),
        ..Info::default()
    };
    Base {
        tx_size: params.tx_size.min(limits.tx.size),
        rx_size: params.rx_size.min(limits.rx.size),
        inject_size: 0,
        progress: FI_PROGRESS_UNSPEC,
        limits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake;

    fn ports(context: Context, states: &[bool]) -> Vec<Device> {
        let limits = context.limits().unwrap();
        let port = |(&is_active, number)| Device {
            context,
            limits,
            number,
            port: Port {
                is_active,
                lid: 0,
                longest_message: 1 << 30,
                mtu: 4096,
                service_level: 0,
                is_ethernet: true,
            },
            inline: 0,
            inline_xrc: limits.has_xrc.then_some(0),
            nic: None,
        };
        states.iter().zip(1..).map(port).collect()
    }

    #[test]
    fn the_state_of_a_link_changes_no_name() {
        let context = fake::context("mlx5_0");
        for states in [[true, true], [false, true], [true, false], [false, false]] {
            let devices = ports(context, &states);
            let number = |domain| find(&devices, domain).map(|device| device.number);
            assert_eq!(number("mlx5_0-dgram"), Some(1), "{states:?}");
            assert_eq!(number("mlx5_0-dgram-2"), Some(2), "{states:?}");
            assert_eq!(number("mlx5_0-dgram-3"), None);
            assert_eq!(number("mlx5_1"), None);
        }
    }

    #[test]
    fn connections_prefer_an_active_port_and_do_with_another() {
        let (one, two) = (fake::context("one"), fake::context("two"));
        for (states, expected) in [
            ([true, true], 1),
            ([false, true], 2),
            ([true, false], 1),
            ([false, false], 1),
        ] {
            let mut devices = ports(one, &[true]);
            devices.extend(ports(two, &states));
            let number = |domain| find(&devices, domain).map(|device| device.number);
            assert_eq!(number("one"), Some(1));
            assert_eq!(number("two"), Some(expected), "{states:?}");
            assert_eq!(one_each(&devices).count(), 2);
        }
    }

    #[test]
    fn xrc_is_offered_where_the_device_has_it_behind_the_others_or_first() {
        let mut params = Params::default();
        let protocols = |params: &Params, context| {
            let bases = bases_on(params, &ports(context, &[true]));
            let of_connected = bases.iter().map(|base| &base.limits.ep);
            let of_connected = of_connected.filter(|ep| ep.ep_type == FI_EP_MSG);
            of_connected
                .map(|ep| (ep.protocol, ep.rx_ctx_cnt))
                .collect::<Vec<_>>()
        };
        let rc = [
            (FI_PROTO_RDMA_CM_IB_RC, 1),
            (FI_PROTO_RDMA_CM_IB_RC, FI_SHARED_CONTEXT),
        ];
        let xrc = [(FI_PROTO_RDMA_CM_IB_XRC, FI_SHARED_CONTEXT)];
        let (with, without) = (fake::xrc::context("with"), fake::context("without"));
        assert_eq!(protocols(&params, without), rc);
        assert_eq!(protocols(&params, with), [&rc[..], &xrc].concat());
        params.prefer_xrc = true;
        assert_eq!(protocols(&params, without), rc);
        assert_eq!(protocols(&params, with), [&xrc[..], &rc].concat());
        let devices = ports(with, &[true]);
        assert!(find(&devices, "with-xrc").is_some());
        assert!(find(&ports(without, &[true]), "without-xrc").is_none());
    }
}
