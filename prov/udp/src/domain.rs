//! fi_fabric(3), fi_domain(3) and fi_endpoint(3): what udp adds to the objects of a software
//! provider.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::sync::LockKind;
use prov_base::{resolve, sockaddr, socket};
use prov_message::objects::{Domain, Enabling, Provider, SoftEndpoint};
use prov_message::{Lane, Signals};
use prov_util::attr::{Info, Offers, has_receives, ip};
use prov_util::av::Av;
use prov_util::domain;
use prov_util::endpoint::{Multicast, NoPassiveEndpoint};
use prov_util::ffi::fabric::FabricObject;
use prov_util::ffi::{Handle, Use};
use prov_util::mr::MrTable;

use crate::LOG;
use crate::bases::bases;
use crate::engine::Core;
use crate::engine::port::{Port, Senders};

/// Bytes of datagrams that a socket keeps until they are received, where the system permits
/// that: what a burst of a few peers brings while the application does something else.
const RECEIVE_BUFFER: usize = 1 << 20;

type Endpoint = SoftEndpoint<Datagrams>;

/// A fabric, which has nothing of its own.
pub struct Fabric;

impl domain::Fabric for Fabric {
    type Domain = Domain<Datagrams>;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::new(bases(), LOG.core)
    }

    /// Automatic progress takes no thread: what has come waits in the socket, and the
    /// application sees it when it reads a queue or a counter, which drives its endpoint.
    fn domain(_: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain<Datagrams>> {
        // There are no keys, but a size without one is wrong.
        info.domain.authorization()?;
        let mut info = info.clone();
        info.domain.data_progress = FI_PROGRESS_MANUAL;
        info.domain.control_progress = FI_PROGRESS_MANUAL;
        Ok(Domain::new(Datagrams, &info, None, LOG.mr))
    }
}

/// What a domain of udp has: nothing of its own.
#[derive(Clone)]
pub struct Datagrams;

/// What an endpoint has besides what its lane knows of it.
pub struct Setup {
    info: Info,
    /// The endpoint's, until it is closed; with its port, too, once it is enabled.
    socket: Option<Arc<OwnedFd>>,
    /// Whether the socket has an address.
    is_bound: bool,
    /// What is bound, for the port.
    av: Option<Use<Av>>,
    /// The groups that are joined.
    groups: Vec<Group>,
}

/// A multicast group that an endpoint has joined.
struct Group {
    /// See [`Multicast::number`].
    number: fi_addr_t,
    address: SocketAddr,
    /// Whether the socket is a member, and receives what is sent to it.
    receives: bool,
}

impl Setup {
    fn socket(&self) -> Result<&OwnedFd> {
        self.socket.as_deref().ok_or(Errno::EOPBADSTATE)
    }

    /// Whose messages the endpoint tells apart.
    fn senders(&self) -> Senders {
        let caps = self.info.caps | self.info.rx.caps;
        match caps {
            caps if caps & FI_SOURCE_ERR != 0 => Senders::All,
            caps if caps & FI_SOURCE != 0 => Senders::Known,
            _ => Senders::None,
        }
    }
}

/// Sets options that every socket has.
fn set_up(socket: OwnedFd) -> OwnedFd {
    socket::udp::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER);
    socket
}

fn bound(addr: &SocketAddr) -> Result<OwnedFd> {
    socket::udp::bound(addr).map(set_up)
}

impl Provider for Datagrams {
    type Core = Core;
    type Setup = Setup;

    const LOG: Targets = LOG;
    /// A datagram leaves its socket for a receive of its endpoint.
    const SHARES_LATE: bool = false;
    const THREAD: &'static str = "fi_udp helper";
    const HAS_MULTICAST: bool = true;

    fn lane(&self, _: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane<Core>>> {
        Lane::start(lock, |signals: &Arc<Signals>| Core::new(signals.clone()))
    }

    fn open(_: &Domain<Self>, info: &Info) -> Result<Setup> {
        if info.ep.ep_type != FI_EP_DGRAM {
            return Err(Errno::EINVAL);
        }
        let is_bound = !info.src_addr.is_empty();
        let source = match is_bound {
            true => sockaddr::decode(&info.src_addr).ok_or(Errno::EINVAL)?,
            false => ip::source(info),
        };
        let socket = match is_bound {
            true => bound(&source)?,
            false => set_up(socket::udp::open(&source)?),
        };
        Ok(Setup {
            info: info.clone(),
            socket: Some(Arc::new(socket)),
            is_bound,
            av: None,
            groups: Vec::new(),
        })
    }

    fn is_alone(_: &Info) -> bool {
        true
    }

    fn enable(&self, setup: &mut Setup, enabling: Enabling<'_, Self>) -> Result<()> {
        setup.av = Some(enabling.bindings.av.clone().ok_or(Errno::ENOAV)?);
        if !setup.is_bound {
            let is_ipv4 = ip::source(&setup.info).is_ipv4();
            let own = resolve::own_address().ok().filter(|_| is_ipv4);
            // The system gives it one when it sends, where the host's name leads to none.
            if let Some(own) = own {
                setup.socket = Some(Arc::new(bound(&own)?));
                setup.is_bound = true;
            }
        }
        Ok(())
    }

    fn enabled(&self, setup: &mut Setup, ep: &Endpoint) -> Result {
        let socket = setup.socket.clone().ok_or(Errno::EOPBADSTATE)?;
        let av = setup.av.take().ok_or(Errno::ENOAV)?;
        let mut port = Port::new(socket, av, setup.senders());
        for group in &setup.groups {
            port.joined(group.number, &group.address);
        }
        let seat = ep.seated()?;
        seat.lane.core().add_port(seat.key, port)
    }

    fn closed(&self, setup: &mut Setup) {
        setup.socket = None;
        setup.av = None;
    }

    fn name(ep: &Endpoint) -> Result<Vec<u8>> {
        let setup = ep.setup();
        let addr = socket::name(setup.socket()?.as_fd())?;
        Ok(sockaddr::encode(&addr).as_bytes().to_vec())
    }

    fn set_name(ep: &Endpoint, name: &[u8]) -> Result {
        let mut setup = ep.setup();
        let addr = sockaddr::decode_as(name, setup.info.addr_format)?;
        // As bind(2) has it of a socket that has an address.
        if ep.seat().is_some() || !setup.groups.is_empty() {
            return Err(Errno::EINVAL);
        }
        let mut own = setup.socket.take().and_then(Arc::into_inner);
        let outcome = socket::tcp::rebind(&mut own, &addr, bound);
        setup.socket = own.map(Arc::new);
        outcome?;
        setup.is_bound = true;
        Ok(())
    }

    fn join_multicast(ep: &Endpoint, group: &Multicast<'_>) -> Result {
        let mut setup = ep.setup();
        if !setup.is_bound {
            return Err(Errno::EOPBADSTATE);
        }
        let address = sockaddr::decode(group.address).ok_or(Errno::EAFNOSUPPORT)?;
        if !socket::udp::is_group(&address) {
            return Err(Errno::EINVAL);
        }
        let receives = group.receives && has_receives(setup.info.caps);
        if receives {
            socket::udp::join(setup.socket()?.as_fd(), &address)?;
        }
        setup.groups.push(Group {
            number: group.number,
            address,
            receives,
        });
        if let Some(seat) = ep.seat()
            && let Some(port) = seat.lane.core().port(seat.key)
        {
            port.joined(group.number, &address);
        }
        Ok(())
    }

    fn leave_multicast(ep: &Endpoint, number: fi_addr_t) -> Result {
        let mut setup = ep.setup();
        let at = setup.groups.iter().position(|group| group.number == number);
        let group = setup.groups.swap_remove(at.ok_or(Errno::EINVAL)?);
        if group.receives {
            socket::udp::leave(setup.socket()?.as_fd(), &group.address)?;
        }
        if let Some(seat) = ep.seat()
            && let Some(port) = seat.lane.core().port(seat.key)
        {
            port.left(number);
        }
        Ok(())
    }
}
