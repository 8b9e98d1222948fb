//! fi_domain(3): a context of UCP, and memory that is registered with it.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::Arc;

use fabric_abi::{FI_ADDR_UCX, FI_HMEM};
use parking_lot::Mutex;
use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_util::attr::Info;
use prov_util::av::format::Format;
use prov_util::domain;
use prov_util::endpoint::NoSharedReceive;
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::mr::{self, Device, MrTable, Registrar, Registration};

use crate::LOG;
use crate::endpoint::UcxEndpoint;
use crate::keys::Keys;
use crate::offer::ADDRESS_LEN;
use crate::params::Params;
use crate::resources::Resources;
use crate::sys::Libucp;
use crate::ucp::{Context, Mapped};

/// A domain.
pub struct UcxDomain(pub Arc<Resources>);

impl UcxDomain {
    /// Opens a domain with the attributes in `info`.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn open(ucp: Libucp, params: &Arc<Params>, info: &Info) -> Result<Self> {
        let context = Context::open(ucp, &params.settings())?;
        let keys = Arc::<Keys>::default();
        let memory = MrTable::new(&mr::Config {
            mr_mode: info.domain.mr_mode,
            registrar: Registrar::Device(Arc::new(Memory {
                context: context.clone(),
                keys: keys.clone(),
            })),
            has_devices: info.caps & FI_HMEM != 0,
            target: LOG.mr,
            ..mr::Config::default()
        });
        Ok(UcxDomain(Arc::new(Resources {
            params: params.clone(),
            context,
            keys,
            memory: Arc::new(memory),
            lock: LockKind::for_domain(info.domain.threading),
        })))
    }
}

impl domain::Domain for UcxDomain {
    type Endpoint = UcxEndpoint;
    type SharedReceive = NoSharedReceive;

    const LOG_TARGET: &'static str = LOG.domain;

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<UcxEndpoint> {
        UcxEndpoint::open(&this.0, info)
    }

    fn lock(&self) -> LockKind {
        self.0.lock
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.0.memory
    }

    fn address_format(&self, _: u32) -> Option<Format> {
        Some(Format::fixed(FI_ADDR_UCX, ADDRESS_LEN))
    }

    fn error_text(status: c_int) -> Option<&'static CStr> {
        crate::ucp::text(status)
    }
}

/// Registers the memory of a domain.
struct Memory {
    context: Arc<Context>,
    keys: Arc<Keys>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("registrations with UCX")
    }
}

impl Device for Memory {
    fn register(&self, request: &mr::Request) -> Result<Box<dyn Registration>> {
        let mapped = Mapped::map(&self.context, &request.memory)?;
        Ok(Box::new(Registered {
            packed: mapped.packed()?,
            mapped: Mutex::new(Some(mapped)),
        }))
    }

    fn map_raw(&self, _: u64, raw: &[u8]) -> Result<u64> {
        self.keys.map(raw)
    }

    fn unmap(&self, key: u64) -> Result {
        self.keys.unmap(key)
    }
}

/// Registered memory, until it is closed.
struct Registered {
    packed: Vec<u8>,
    mapped: Mutex<Option<Mapped>>,
}

impl Registration for Registered {
    /// UCX finds the registration by the address.
    fn desc(&self) -> usize {
        1
    }

    fn key(&self) -> u64 {
        mr::NO_KEY
    }

    fn raw_key(&self) -> Vec<u8> {
        self.packed.clone()
    }

    fn close(&self) -> Result {
        drop(self.mapped.lock().take());
        Ok(())
    }
}
