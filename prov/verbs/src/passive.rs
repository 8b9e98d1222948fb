//! fi_passive_ep(3): listening, on all devices or on one.

use std::sync::Arc;

use fabric_abi::FI_PROTO_RDMA_CM_IB_XRC;
use prov_base::errno::{Errno, Result};
use prov_device::link::EndKey;
use prov_message::objects::{Listening, RequestReporter, Requests, SoftPassive};
use prov_util::attr::Info;
use prov_util::progress::Progress;

use crate::LOG;
use crate::address::{PortSpace, SocketAddress, space_of};
use crate::bases::adapt;
use crate::device::Id;
use crate::manager::{DATA_LIMIT, Incomer, Manager, XRC_DATA_LIMIT};
use crate::params::Params;

/// Bound of connection requests that wait in the kernel.
const BACKLOG: i32 = 128;

/// A passive endpoint of verbs.
pub struct Passive {
    params: Arc<Params>,
    manager: Arc<Manager>,
    space: PortSpace,
    is_xrc: bool,
}

/// A passive endpoint.
pub type PassiveEndpoint = SoftPassive<Passive>;

/// Its state before it listens: a bound identifier.
#[derive(Default)]
pub struct Setup {
    pub id: Option<Id>,
    /// The same for the datagrams of XRC.
    pub datagrams: Option<Id>,
}

impl Passive {
    /// Creates an endpoint that is bound to the source address in `info`, if there is one.
    pub fn endpoint(
        params: Arc<Params>,
        manager: Arc<Manager>,
        requests: Arc<Requests<Incomer>>,
        info: &Info,
    ) -> Result<PassiveEndpoint> {
        let own = Passive {
            params,
            manager,
            space: space_of(info.addr_format),
            is_xrc: info.ep.protocol == FI_PROTO_RDMA_CM_IB_XRC,
        };
        let mut setup = Setup::default();
        if !info.src_addr.is_empty() {
            own.set_name(&mut setup, &info.src_addr)?;
        }
        Ok(SoftPassive::new(own, setup, requests, info))
    }
}

impl Listening for Passive {
    type Incomer = Incomer;
    type Setup = Setup;
    type Listener = EndKey;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;
    const BACKLOG: i32 = BACKLOG;
    const DATA_LIMIT: usize = DATA_LIMIT;

    fn data_limit(&self) -> usize {
        match self.is_xrc {
            true => XRC_DATA_LIMIT,
            false => DATA_LIMIT,
        }
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.manager.clone()
    }

    fn listen(
        &self,
        setup: &mut Setup,
        reporter: RequestReporter<Incomer>,
        backlog: i32,
    ) -> Result<EndKey> {
        let id = setup.id.take().ok_or(Errno::EOPBADSTATE)?;
        let datagrams = setup.datagrams.take();
        let params = self.params.clone();
        let describe = move |incomer: &Incomer, info: &mut Info| {
            if let Some(context) = incomer.id.context() {
                adapt(info, &params, context);
            }
            if let Some(own) = incomer.id.local_address() {
                info.addr_format = own.format();
                info.src_addr = own.encode();
            }
        };
        self.manager
            .listen(id, datagrams, reporter, backlog, Box::new(describe))
    }

    fn close(&self, setup: &mut Setup, listener: Option<EndKey>) {
        if let Some(key) = listener {
            self.manager.remove(key);
        }
        setup.id = None;
        setup.datagrams = None;
    }

    fn name(&self, setup: &Setup, listener: Option<&EndKey>) -> Result<Vec<u8>> {
        let address = match (&setup.id, listener) {
            (Some(id), _) => id.local_address(),
            (None, Some(&key)) => self.manager.local_address(key),
            (None, None) => None,
        };
        let address = address.ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(address.encode())
    }

    fn set_name(&self, setup: &mut Setup, name: &[u8]) -> Result<Vec<u8>> {
        let address = SocketAddress::decode(name).ok_or(Errno::EINVAL)?;
        if address.space() != self.space {
            return Err(Errno::EINVAL);
        }
        // The previous identifier may have the same port.
        setup.id = None;
        setup.datagrams = None;
        let mut id = Id::waiting(self.space)?;
        id.bind(&address)?;
        let bound = id.local_address().unwrap_or(address);
        if self.is_xrc {
            let mut datagrams = Id::waiting(PortSpace::Udp)?;
            datagrams.bind(&bound)?;
            setup.datagrams = Some(datagrams);
        }
        setup.id = Some(id);
        Ok(bound.encode())
    }

    fn refuse(&self, incomer: Incomer, data: &[u8]) {
        self.manager.refuse(incomer, data);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use fabric_abi::{FI_CONNREQ, FI_VERSION};
    use prov_util::attr::Opaque;
    use prov_util::endpoint::PassiveEndpoint as _;
    use prov_util::eq::Eq;
    use prov_util::ffi::pep::PassiveObject;
    use prov_util::ffi::{Handle, Use};
    use prov_util::wait::Attachment;

    use super::*;
    use crate::device::{Channel, fake};
    use crate::lane::Ear;
    use crate::manager::UNANSWERED_LIMIT;

    /// Valid for XRC, too.
    const MESSAGE: &[u8] = &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn id(context: crate::device::Context, space: PortSpace) -> Id {
        Id::new(&Channel::fake(context), space, 0).unwrap()
    }

    /// A listener, and its event queue.
    struct Listener {
        passive: Handle<PassiveObject<SoftPassive<Passive>>>,
        manager: Arc<Manager>,
        requests: Arc<Requests<Incomer>>,
        eq: Use<Eq>,
        /// The number of its identifier.
        key: u64,
    }

    fn listener(is_xrc: bool) -> Listener {
        let context = fake::xrc::context("fake");
        let own = Passive {
            params: Arc::default(),
            manager: Manager::fake(context),
            space: PortSpace::Tcp,
            is_xrc,
        };
        let setup = Setup {
            id: Some(id(context, PortSpace::Tcp)),
            datagrams: is_xrc.then(|| id(context, PortSpace::Udp)),
        };
        let (manager, requests) = (own.manager.clone(), Arc::<Requests<_>>::default());
        let info = Info::default();
        let passive = PassiveObject(SoftPassive::new(own, setup, requests.clone(), &info));
        let passive = Handle::new(passive, null_mut(), Vec::new());
        let eq = Eq::new(Attachment::None, FI_VERSION(2, 0));
        let eq = Use::of(&Handle::new(eq, null_mut(), Vec::new()));
        passive.bind(eq.clone()).unwrap();
        fake::xrc::calls();
        PassiveEndpoint::listen(&passive).unwrap();
        let key = fake::xrc::calls()[0].key;
        Listener {
            passive,
            manager,
            requests,
            eq,
            key,
        }
    }

    impl Listener {
        /// Makes so many peers request a connection, while the driving thread does other work.
        fn hears(&self, asking: usize) {
            let peer = SocketAddress::Internet("10.0.0.1:7471".parse().unwrap());
            (0..asking).for_each(|_| fake::xrc::ask(self.key, &peer, MESSAGE));
            rustix::io::write(self.manager.descriptor(), &1u64.to_ne_bytes()).unwrap();
            self.manager.progress();
            assert!(fake::xrc::events() < asking);
            while fake::xrc::events() != 0 {
                self.manager.progress();
            }
        }

        /// Returns the number of requests that the event queue reports.
        fn told(&self) -> usize {
            let mut count = 0;
            let mut note = |event: &prov_util::eq::Event| {
                assert_eq!(event.kind, FI_CONNREQ);
                count += 1;
            };
            while self.eq.read(usize::MAX, false, &mut note).is_ok() {}
            count
        }
    }

    #[test]
    fn requests_that_have_no_answer_do_not_pile_up() {
        const ASKING: usize = UNANSWERED_LIMIT + 50;
        for is_xrc in [false, true] {
            let listener = listener(is_xrc);
            listener.hears(ASKING);
            assert_eq!(listener.told(), UNANSWERED_LIMIT);
            let rejected = fake::xrc::calls();
            let is_destroy = |call: &&fake::xrc::Call| call.kind == fake::xrc::Kind::Destroy;
            assert_eq!(
                rejected.iter().filter(is_destroy).count(),
                ASKING - UNANSWERED_LIMIT
            );
        }
    }

    #[test]
    fn a_request_is_rejected_for_which_an_endpoint_is_open() {
        for is_xrc in [false, true] {
            let listener = listener(is_xrc);
            listener.hears(1);
            // The request waits for its answer as long as its event may be read.
            let mut handle = Opaque::NULL;
            let note = |event: &prov_util::eq::Event| handle = fake::handle_of(event);
            listener.eq.read(usize::MAX, true, note).unwrap();
            // As an endpoint does that is opened for it.
            let claimed = listener.requests.claim(handle.0).unwrap();
            listener.passive.reject(handle, b"no").unwrap();
            let calls = fake::xrc::calls();
            let rejected = calls
                .iter()
                .filter(|call| call.kind == fake::xrc::Kind::Reject);
            let rejected: Vec<_> = rejected.collect();
            assert_eq!(rejected.len(), 1);
            assert!(rejected[0].data.windows(2).any(|data| data == b"no"));
            // There is no peer that the endpoint could accept.
            assert!(claimed.take().is_none());
            assert!(listener.passive.reject(handle, b"no").is_err());
        }
    }
}
