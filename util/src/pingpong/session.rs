//! The endpoint of one side, and its peer.

use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use fabric_abi::{
    FI_CONTEXT, FI_CONTEXT2, FI_EP_DGRAM, FI_EP_MSG, FI_LOCAL_COMM, FI_MR_ALLOCATED, FI_MR_LOCAL,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MSG_PREFIX, FI_SOCKADDR_IN, FI_SOCKADDR_IN6,
    FI_TAGGED,
};

use super::control::{Control, Name};
use super::options::Size;
use super::patience::Patience;
use super::{Options, Problem};
use crate::fabric::{
    AddressVector, Binding, CONTEXTS, CompletionQueue, Domain, Endpoint, Event, EventQueue, Fabric,
    Hints, Info, InfoList, Memory, PassiveEndpoint, Result,
};

/// Largest message if the options name no size.
const LARGEST: usize = (1 << 22) + (1 << 21);

/// Smallest buffer, with space for the last message, whatever the size under test.
const SMALLEST_BUFFER: usize = 64;

/// The tag of tagged messages.
const TAG: u64 = 1234;

/// An endpoint that can reach its peer.
pub struct Session {
    pub endpoint: Endpoint,
    pub control: Control,
    /// The peer's index in the address vector.
    pub peer: u64,
    /// Number of bytes before each message that belong to the provider.
    pub prefix: usize,
    /// Messages shorter than this are injected.
    pub inject_below: usize,
    largest: usize,
    /// Largest number of messages of a stream in flight in one direction.
    window: u64,
    connected: bool,
    /// The entry that the endpoint was opened from, as text.
    description: Vec<u8>,
    debug: bool,
    /// Closed after the endpoint.
    _listener: Option<PassiveEndpoint>,
}

impl Session {
    /// Opens an endpoint according to the options, and makes the peer known to it.
    pub fn open(options: &Options) -> std::result::Result<Session, Problem> {
        let control = Control::open(options)?;
        let session = match (options.endpoint_type == FI_EP_MSG, options.is_server()) {
            (true, true) => serve_connection(options, control),
            (true, false) => connect(options, control),
            (false, _) => meet(options, control),
        }?;
        // The first message may arrive from now on.
        session.endpoint.post_receive()?;
        if options.endpoint_type == FI_EP_DGRAM {
            // The last message must not find the queue empty: it would not be repeated.
            session.endpoint.post_receive()?;
        }
        Ok(session)
    }

    /// Returns the largest number of bytes of a message.
    pub fn largest_message(&self) -> usize {
        self.largest
    }

    /// Returns the largest number of messages of a stream in flight in one direction; at least two.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Prints a description of the endpoint.
    pub fn announce(&self) {
        debug!(
            self,
            "endpoint:\n{}",
            String::from_utf8_lossy(&self.description)
        );
    }

    /// Ends the connection, if there is one.
    pub fn close(self) {
        if self.connected {
            // Fails if the other side was first.
            let _ = self.endpoint.shut_down();
        }
    }
}

/// Opens a connectionless endpoint: both sides exchange their addresses.
fn meet(options: &Options, control: Control) -> std::result::Result<Session, Problem> {
    let mut hints = hints(options)?;
    let mut peer = None;
    if !options.is_server() {
        peer = Some(aim_at(&mut hints, control.receive_name()?)?);
    }
    let list = query(&hints)?;
    let info = list.first()?;
    let fabric = Fabric::open(&info)?;
    let domain = Domain::open(&fabric, &info)?;
    let addresses = AddressVector::open(&domain, &info)?;
    let binding = Binding {
        addresses: Some(Rc::clone(&addresses)),
        ..queues(&domain, &info)?
    };
    let endpoint = endpoint(options, &domain, &info, binding)?;

    let own = endpoint.name()?;
    control.send_name(&Name {
        format: info.address_format(),
        address: own.clone(),
    })?;
    let peer = match peer {
        Some(peer) => peer,
        None => control.receive_name()?.address,
    };
    let to_self = info.domain_caps() & FI_LOCAL_COMM != 0;
    // The order is that of the C library's program: the peer is the server's second entry.
    if to_self && options.is_server() {
        addresses.insert(&own)?;
    }
    let name = addresses.insert(&peer)?;
    if to_self && !options.is_server() {
        addresses.insert(&own)?;
    }
    Ok(session(options, &info, control, endpoint, name, None))
}

/// Opens a connected endpoint, on the side that listens.
fn serve_connection(options: &Options, control: Control) -> std::result::Result<Session, Problem> {
    let hints = hints(options)?;
    let list = query(&hints)?;
    let info = list.first()?;
    let fabric = Fabric::open(&info)?;
    let events = EventQueue::open(&fabric)?;
    let listener = PassiveEndpoint::listen(&fabric, &info, &events)?;
    control.send_name(&Name {
        format: info.address_format(),
        address: listener.name()?,
    })?;
    let request = match next_event(&events, &control)? {
        Event::Request(request) => request,
        other => return Err(unexpected(&other)),
    };
    let info = request.first()?;
    let accepted = accept(options, &fabric, &info, &events, &control);
    if accepted.is_err() {
        // The peer must not wait in vain; the first error is the one to report.
        let _ = listener.reject(&info);
    }
    Ok(session(
        options,
        &info,
        control,
        accepted?,
        0,
        Some(listener),
    ))
}

fn accept(
    options: &Options,
    fabric: &Rc<Fabric>,
    info: &Info,
    events: &Rc<EventQueue>,
    control: &Control,
) -> std::result::Result<Endpoint, Problem> {
    let domain = Domain::open(fabric, info)?;
    let binding = Binding {
        events: Some(Rc::clone(events)),
        ..queues(&domain, info)?
    };
    let endpoint = endpoint(options, &domain, info, binding)?;
    endpoint.accept()?;
    await_connection(&endpoint, events, control)?;
    Ok(endpoint)
}

/// Opens a connected endpoint, on the side that connects.
fn connect(options: &Options, control: Control) -> std::result::Result<Session, Problem> {
    let mut hints = hints(options)?;
    let peer = aim_at(&mut hints, control.receive_name()?)?;
    let list = query(&hints)?;
    let info = list.first()?;
    let fabric = Fabric::open(&info)?;
    let events = EventQueue::open(&fabric)?;
    let domain = Domain::open(&fabric, &info)?;
    let binding = Binding {
        events: Some(Rc::clone(&events)),
        ..queues(&domain, &info)?
    };
    let endpoint = endpoint(options, &domain, &info, binding)?;
    endpoint.connect(&peer)?;
    await_connection(&endpoint, &events, &control)?;
    Ok(session(options, &info, control, endpoint, 0, None))
}

fn await_connection(
    endpoint: &Endpoint,
    events: &EventQueue,
    control: &Control,
) -> std::result::Result<(), Problem> {
    match next_event(events, control)? {
        Event::Connected(object) if endpoint.is(object) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Returns the next connection event, unless the other side leaves.
fn next_event(events: &EventQueue, control: &Control) -> std::result::Result<Event, Problem> {
    let mut patience = Patience::default();
    loop {
        if let Some(event) = events.wait(100)? {
            return Ok(event);
        }
        patience.check(control)?;
    }
}

fn unexpected(event: &Event) -> Problem {
    let what = match event {
        Event::Request(_) => String::from("a connection request"),
        Event::Connected(_) => String::from("a connection of something else"),
        Event::Other(number) => format!("event {number}"),
    };
    Problem::Protocol(format!("unexpected: {what}"))
}

/// Sets hints that lead to the peer; returns the peer's address.
fn aim_at(hints: &mut Hints, peer: Name) -> Result<Vec<u8>> {
    hints.set_address_format(peer.format);
    hints.set_destination(&peer.address)?;
    Ok(peer.address)
}

fn hints(options: &Options) -> Result<Hints> {
    let mut hints = Hints::new()?;
    hints.set_endpoint_type(options.endpoint_type);
    hints.set_caps(if options.tagged { FI_TAGGED } else { FI_MSG });
    hints.set_modes(FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX);
    hints.set_mr_mode(FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR);
    if let Size::One(size) = options.size
        && options.endpoint_type == FI_EP_DGRAM
    {
        hints.set_max_msg_size(size);
    }
    if let Some(name) = &options.provider {
        hints.set_provider(name)?;
    }
    if let Some(name) = &options.domain {
        hints.set_domain(name)?;
    }
    if let Some(name) = &options.fabric {
        hints.set_fabric(name)?;
    }
    if let Some(address) = options.source.as_deref().and_then(resolve) {
        hints.set_address_format(if address.is_ipv6() {
            FI_SOCKADDR_IN6
        } else {
            FI_SOCKADDR_IN
        });
        let address = socket2::SockAddr::from(address);
        hints.set_source(as_bytes(&address))?;
    }
    Ok(hints)
}

fn resolve(name: &str) -> Option<SocketAddr> {
    (name, 0).to_socket_addrs().ok()?.next()
}

/// Returns the bytes of a socket address in the system's representation.
fn as_bytes(address: &socket2::SockAddr) -> &[u8] {
    // SAFETY: the address is initialised for its length.
    unsafe { std::slice::from_raw_parts(address.as_ptr().cast(), address.len() as usize) }
}

fn query(hints: &Hints) -> Result<InfoList> {
    let mut list = InfoList::query(None, None, 0, Some(hints))?;
    list.drop_directed_receive();
    Ok(list)
}

fn queues(domain: &Rc<Domain>, info: &Info) -> Result<Binding> {
    let (_, transmit, _) = info.transmit();
    let (_, receive) = info.receive();
    Ok(Binding {
        transmit: CompletionQueue::open(domain, transmit)?,
        receive: CompletionQueue::open(domain, receive)?,
        addresses: None,
        events: None,
    })
}

fn endpoint(
    options: &Options,
    domain: &Rc<Domain>,
    info: &Info,
    binding: Binding,
) -> Result<Endpoint> {
    let buffer = largest(options, info).max(SMALLEST_BUFFER);
    let prefix = prefix(info);
    let memory = Memory::new(buffer + prefix, buffer + prefix)?;
    Endpoint::open(domain, info, binding, memory, options.tagged.then_some(TAG))
}

/// Returns the largest number of bytes of a message in this test.
fn largest(options: &Options, info: &Info) -> usize {
    let wanted = match options.size {
        Size::One(size) => size,
        _ => LARGEST,
    };
    wanted.min(info.message_sizes().0)
}

/// Returns the number of bytes before a message, in mode `FI_MSG_PREFIX`.
fn prefix(info: &Info) -> usize {
    let (transmit, ..) = info.transmit();
    let (receive, _) = info.receive();
    match (transmit | receive) & FI_MSG_PREFIX {
        0 => 0,
        _ => info.message_sizes().1,
    }
}

/// Returns the number of messages for which both queues and the endpoint have space.
fn window(info: &Info) -> u64 {
    let (_, transmit, _) = info.transmit();
    let (_, receive) = info.receive();
    transmit.min(receive).clamp(2, CONTEXTS) as u64
}

fn session(
    options: &Options,
    info: &Info,
    control: Control,
    endpoint: Endpoint,
    peer: u64,
    listener: Option<PassiveEndpoint>,
) -> Session {
    let (_, _, inject_below) = info.transmit();
    Session {
        endpoint,
        control,
        peer,
        prefix: prefix(info),
        inject_below,
        largest: largest(options, info),
        window: window(info),
        connected: options.endpoint_type == FI_EP_MSG,
        description: if options.debug {
            info.text()
        } else {
            Vec::new()
        },
        debug: options.debug,
        _listener: listener,
    }
}
