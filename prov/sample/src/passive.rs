//! fi_passive_ep(3): listeners.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_device::mock::{Bound, Connector, Incomer};
use prov_message::objects::{Listening, RequestReporter, SoftPassive};
use prov_util::attr::Info;
use prov_util::progress::Progress;

use crate::LOG;

/// A passive endpoint of this provider.
pub struct Passive(Arc<Connector>);

/// A passive endpoint.
pub type PassiveEndpoint = SoftPassive<Passive>;

impl Passive {
    /// Creates an endpoint that is bound to the source address in `info`, if there is one.
    pub fn endpoint(connector: &Arc<Connector>, info: &Info) -> Result<PassiveEndpoint> {
        let mut bound = None;
        if !info.src_addr.is_empty() {
            bound = Some(connector.bind_to(&info.src_addr)?);
        }
        let own = Passive(connector.clone());
        Ok(SoftPassive::new(
            own,
            bound,
            connector.asking().clone(),
            info,
        ))
    }
}

impl Listening for Passive {
    type Incomer = Incomer;
    type Setup = Option<Bound>;
    type Listener = Bound;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;
    const BACKLOG: i32 = 128;
    const DATA_LIMIT: usize = 256;

    fn progress(&self) -> Arc<dyn Progress> {
        self.0.clone()
    }

    fn listen(
        &self,
        setup: &mut Option<Bound>,
        reporter: RequestReporter<Incomer>,
        _: i32,
    ) -> Result<Bound> {
        let bound = setup.take().ok_or(Errno::EOPBADSTATE)?;
        bound.listen(reporter);
        Ok(bound)
    }

    fn close(&self, setup: &mut Option<Bound>, listener: Option<Bound>) {
        *setup = None;
        drop(listener);
    }

    fn name(&self, setup: &Option<Bound>, listener: Option<&Bound>) -> Result<Vec<u8>> {
        let bound = setup.as_ref().or(listener);
        Ok(bound.ok_or(Errno::EADDRNOTAVAIL)?.name())
    }

    fn set_name(&self, setup: &mut Option<Bound>, name: &[u8]) -> Result<Vec<u8>> {
        *setup = None;
        let bound = self.0.bind_to(name)?;
        let name = bound.name();
        *setup = Some(bound);
        Ok(name)
    }

    fn refuse(&self, incomer: Incomer, data: &[u8]) {
        incomer.refuse(data);
    }
}
