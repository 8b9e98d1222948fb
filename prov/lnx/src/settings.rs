//! What the user has configured.

use prov_base::errno::{Errno, Result};

use crate::LOG;
use crate::links::{Link, parse};
use crate::params::{Params, Selection};

/// See the [module](self) description.
pub struct Settings {
    /// The links.
    pub links: Vec<Link>,
    /// Which of several paths to a peer operations take.
    pub selection: Selection,
    /// Whether peers of the same host are reached through shm.
    pub uses_shm: bool,
}

impl Settings {
    /// Reads the parameters; `None` if no links are configured.
    ///
    /// # Errors
    /// `-FI_EINVAL` for values that mean nothing, which are reported.
    pub fn of(params: &Params) -> Result<Option<Self>> {
        let Some(text) = &params.prov_links else {
            return Ok(None);
        };
        let links = parse(text).inspect_err(|_| {
            log::warn!(
                target: LOG.fabric,
                "FI_LNX_PROV_LINKS={text} links no providers, or this one"
            );
        })?;
        Ok(Some(Settings {
            links,
            selection: params.selection().ok_or(Errno::EINVAL)?,
            uses_shm: !params.disable_shm,
        }))
    }
}
