//! The conformance kit on RDM and on connected endpoints of this provider, with and without its local
//! path.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use prov_kit::{Bench, Connecting, Objects, Opened, Property, Setting};
use prov_message::Linked as _;
use prov_util::av::{self, format::Format};
use prov_util::eq::ConnectionEvents;

use super::*;
use crate::engine::ending::closing;
use crate::engine::link::endpoint::Msg;
use crate::engine::link::keys::ListenerKey;
use crate::engine::link::listener::{Incomer, RequestSink};
use crate::engine::link::post::COPY_LIMIT;
use crate::engine::transfer::ways::ALWAYS_ANNOUNCED;
use crate::params::Local;
use crate::passive::refuse;
use crate::wire::handshake::MAX_DATA;
use prov_base::errno::Result;

struct Tcp<const LOCAL: bool> {
    setting: Setting,
}

impl<const LOCAL: bool> Bench for Tcp<LOCAL> {
    type Core = Core;
    const STEPS: &'static [usize] = &[COPY_LIMIT, ALWAYS_ANNOUNCED];

    fn new(setting: Setting) -> Self {
        Tcp { setting }
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: Format::IN,
            ..av::Config::default()
        }
    }

    fn insertion(name: &[u8]) -> Insertion<'_> {
        Insertion::from(prov_base::sockaddr::decode(name).unwrap())
    }

    fn links(core: &Core, ep: EpKey) -> Option<usize> {
        Some(core.links_of(ep).len())
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let av = objects.av.clone();
        let kind = |addr, params: &Params| Kind::Rdm(Box::new(Rdm::new(av, addr, params)));
        opened(begin(
            params::<LOCAL>(self.setting),
            None,
            objects.attributes,
            kind,
            ListenerKind::Rdm,
        ))
    }
}

fn params<const LOCAL: bool>(setting: Setting) -> Params {
    Params {
        local: match LOCAL {
            true => Local::Auto,
            false => Local::Off,
        },
        tx_size: setting.tx_size,
        ..Params::default()
    }
}

fn opened(begun: Begun) -> Opened<Core> {
    Opened {
        lane: begun.engine,
        ep: begun.ep,
        name: prov_base::sockaddr::encode(&begun.addr).as_bytes().to_vec(),
        table: begun.memory,
    }
}

/// Connected endpoints, and a listener in a lane of its own, as a fabric has it.
struct Msgs<const LOCAL: bool> {
    setting: Setting,
    params: Arc<Params>,
    lane: Arc<Lane>,
    listener: Option<ListenerKey>,
    requests: Sink,
    /// Bound sockets that do not listen.
    refusing: Vec<OwnedFd>,
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<VecDeque<Incomer>>>);

impl RequestSink for Sink {
    fn has_room(&self) -> bool {
        true
    }

    fn request(&self, incomer: Incomer) {
        self.0.lock().unwrap().push_back(incomer);
    }
}

impl<const LOCAL: bool> Bench for Msgs<LOCAL> {
    type Core = Core;
    const LACKS: &'static [Property] = &[Property::Peers];
    const STEPS: &'static [usize] = &[COPY_LIMIT];

    fn new(setting: Setting) -> Self {
        let params = Arc::new(params::<LOCAL>(setting));
        let lane = Lane::start(LockKind::Real, |signals| {
            Core::new(params.clone(), None, None, signals.clone())
        });
        Msgs {
            setting,
            params: params.clone(),
            lane: lane.unwrap(),
            listener: None,
            requests: Sink::default(),
            refusing: Vec::new(),
        }
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: Format::IN,
            ..av::Config::default()
        }
    }

    fn open(&mut self, objects: &Objects) -> Opened<Core> {
        let eq = objects.eq.clone();
        let kind = |_, _: &Params| {
            Kind::Msg(Msg {
                events: Some(ConnectionEvents::new(eq.handle().named(), eq)),
                ..Msg::default()
            })
        };
        let listener = |_| ListenerKind::Passive(Box::new(Sink::default()));
        let params = params::<LOCAL>(self.setting);
        opened(begin(params, None, objects.attributes, kind, listener))
    }

    fn introduce(&mut self, sides: &[&prov_kit::Side<Self>]) {
        prov_kit::connect(self, sides);
    }
}

impl<const LOCAL: bool> Connecting for Msgs<LOCAL> {
    type Request = Incomer;
    const DATA_LIMIT: usize = MAX_DATA;

    fn listen(&mut self) -> Vec<u8> {
        let socket = socket::bound(&"127.0.0.1:0".parse().unwrap(), &self.params).unwrap();
        let addr = socket::name(socket.as_fd()).unwrap();
        let kind = ListenerKind::Passive(Box::new(self.requests.clone()));
        let mut core = self.lane.core();
        self.listener = Some(core.add_listener(socket, kind, None, 128).unwrap());
        prov_base::sockaddr::encode(&addr).as_bytes().to_vec()
    }

    fn stop_listening(&mut self) {
        let listener = self.listener.take().unwrap();
        self.lane.core().remove_listener(listener);
    }

    fn nobody(&mut self) -> Vec<u8> {
        let socket = socket::bound(&"127.0.0.1:0".parse().unwrap(), &self.params).unwrap();
        let addr = socket::name(socket.as_fd()).unwrap();
        self.refusing.push(socket);
        prov_base::sockaddr::encode(&addr).as_bytes().to_vec()
    }

    fn next_request(&self) -> Option<(Incomer, Vec<u8>)> {
        self.lane.progress();
        let incomer = self.requests.0.lock().unwrap().pop_front()?;
        let data = incomer.message.data.clone();
        Some((incomer, data))
    }

    fn connect(&self, from: &Opened<Core>, to: &[u8], data: &[u8]) -> Result {
        let to = prov_base::sockaddr::decode(to).unwrap();
        let mut core = from.lane.core();
        core.connect_msg(from.ep, None, None, &to, data)
    }

    fn accept(&self, at: &Opened<Core>, request: Incomer, data: &[u8]) -> Result {
        at.lane.core().accept_msg(at.ep, request, data)
    }

    fn reject(&self, request: Incomer, data: &[u8]) {
        refuse(request, data);
    }

    fn shut_down(&self, at: &Opened<Core>) {
        closing::shut_down(&at.lane, at.ep);
    }
}

mod within_the_host {
    prov_kit::conformance!(super::Tcp<true>);
}

mod through_sockets {
    prov_kit::conformance!(super::Tcp<false>);
}

mod connected_within_the_host {
    prov_kit::conformance!(super::Msgs<true>);
    prov_kit::conformance!(connecting super::Msgs<true>);
}

mod connected_through_sockets {
    prov_kit::conformance!(super::Msgs<false>);
    prov_kit::conformance!(connecting super::Msgs<false>);
}
