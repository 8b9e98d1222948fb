//! What the objects of a domain share.

use std::sync::Arc;

use prov_base::sync::LockKind;
use prov_util::mr::MrTable;

use crate::keys::Keys;
use crate::params::Params;
use crate::ucp::Context;

/// See the [module](self) description.
pub struct Resources {
    pub params: Arc<Params>,
    pub context: Arc<Context>,
    /// The keys of peers that the application has mapped.
    pub keys: Arc<Keys>,
    pub memory: Arc<MrTable>,
    pub lock: LockKind,
}
