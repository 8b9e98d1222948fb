//! Where an endpoint listens for peers: its passive endpoint below, whose address is its own.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::socket::tcp::Row;
use prov_util::attr::Info;
use prov_util::below::{Eq, Fabric, PassiveEndpoint};

use crate::wire::connection::CONTEXT_REQUEST;
use crate::{LOG, address};

/// A passive endpoint that does not listen yet, and its event queue.
pub struct Listening {
    pub passive: PassiveEndpoint,
    pub eq: Arc<Eq>,
}

impl Listening {
    /// Opens a passive endpoint at the source address of `core`, any port if that is 0.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn open(fabric: &Arc<Fabric>, core: &Info) -> Result<Self> {
        let eq = Eq::open(fabric)?;
        let passive = PassiveEndpoint::open(fabric, core, &eq)?;
        Ok(Listening { passive, eq })
    }

    /// Opens one for each context of a scalable endpoint, at as many ports in a row, from the
    /// source address of `core` on.
    ///
    /// # Errors
    /// What the provider below returns; `-FI_EADDRINUSE` if one of the ports behind a given one is
    /// in use, or if no row was found.
    pub fn open_in_row(fabric: &Arc<Fabric>, core: &Info, count: usize) -> Result<Vec<Self>> {
        let is_given = address::read(&core.src_addr).is_ok_and(|addr| addr.port() != 0);
        for attempt in Row::attempts(is_given) {
            let first = Self::open(fabric, core)?;
            first.takes(CONTEXT_REQUEST)?;
            if let Some(row) = first.row(fabric, core, count, attempt)? {
                return Ok(row);
            }
        }
        log::warn!(target: LOG.ep_ctrl, "there are no {count} free ports in a row");
        Err(Errno::EADDRINUSE)
    }

    /// Opens the others at the ports behind that of the first one, if they may be taken; `None` if
    /// one of them may not, or is in use.
    fn row(
        self,
        fabric: &Arc<Fabric>,
        core: &Info,
        count: usize,
        attempt: Row,
    ) -> Result<Option<Vec<Self>>> {
        let first = address::read(&self.passive.address()?)?;
        let mut row = vec![self];
        for port in (first.port()..=u16::MAX)
            .skip(1)
            .take(count.saturating_sub(1))
        {
            let at = address::at_port(first, port);
            if !attempt.takes(&at)? {
                return Ok(None);
            }
            let core = Info {
                src_addr: address::bytes(&at),
                ..core.clone()
            };
            match Self::open(fabric, &core) {
                Ok(next) => row.push(next),
                Err(Errno::EADDRINUSE) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok((row.len() == count.max(1)).then_some(row))
    }

    /// Checks that connection data of this length reaches peers.
    ///
    /// # Errors
    /// `-FI_EOTHER` if it does not.
    pub fn takes(&self, len: usize) -> Result {
        match self.passive.data_limit()? < len {
            true => {
                log::warn!(
                    target: LOG.ep_ctrl,
                    "the provider below takes less connection data than {len} bytes"
                );
                Err(Errno::EOTHER)
            }
            false => Ok(()),
        }
    }
}
