//! fi_getinfo(3) for datagrams. The node's name server resolves a node and a service to an address;
//! a service of the caller's own is registered there, and a node of its own determines the device.

use std::net::IpAddr;

use fabric_abi::{FI_MSG_PREFIX, FI_SOURCE};
use prov_base::buffer::IOV_LIMIT;
use prov_base::errno::{Errno, Result};
use prov_base::resolve::{self, Query};
use prov_util::attr::{Base, Hints, Info, Request, named};

use super::datagrams_source;
use crate::name::Name;
use crate::name_server;
use crate::params::Params;

/// Largest number of buffers of a receive without space for the header, which takes one more.
const MOST_PIECES: usize = IOV_LIMIT - 1;

/// Returns the endpoints of `bases` that match.
pub fn getinfo(request: &Request<'_>, params: &Params, bases: &[Base]) -> Result<Vec<Info>> {
    let naming = Naming { request, params };
    let mut bases = bases.to_vec();
    if let Some(source) = datagrams_source(request)? {
        bases.retain(|base| base.limits.domain.name.as_ref() == Some(&source));
    }
    if leaves_room(request.hints) {
        return named::getinfo(request, &bases, &naming);
    }
    // The header is stored elsewhere then.
    for base in &mut bases {
        base.limits.mode &= !FI_MSG_PREFIX;
        base.limits.tx.mode &= !FI_MSG_PREFIX;
        base.limits.rx.mode &= !FI_MSG_PREFIX;
        base.limits.ep.msg_prefix_size = 0;
        base.limits.rx.iov_limit = base.limits.rx.iov_limit.min(MOST_PIECES);
    }
    named::getinfo(request, &bases, &naming)
}

/// Whether the caller leaves space before its messages.
fn leaves_room(hints: Option<&Hints>) -> bool {
    hints.is_none_or(|hints| {
        let mode = hints.mode | hints.rx.as_ref().map_or(0, |rx| rx.mode);
        mode & FI_MSG_PREFIX != 0
    })
}

struct Naming<'a> {
    request: &'a Request<'a>,
    params: &'a Params,
}

impl Naming<'_> {
    fn host(&self) -> Result<Option<IpAddr>> {
        if self.request.node.is_none() {
            return Ok(None);
        }
        let found = resolve::resolve(&Query {
            node: self.request.node,
            service: None,
            // The address family at which name servers listen.
            family: libc::AF_INET,
            passive: false,
            numeric: false,
        });
        let found = found.map_err(|_| Errno::ENODATA)?;
        Ok(found.first().map(|address| address.ip()))
    }
}

impl named::Naming for Naming<'_> {
    fn address(&self, _: Option<&str>, service: Option<&str>) -> Result<Vec<u8>> {
        let service =
            service.map_or(Ok(0), |service| service.parse().map_err(|_| Errno::ENODATA))?;
        if self.request.flags & FI_SOURCE != 0 {
            let own = Name {
                service,
                ..Name::default()
            };
            return Ok(own.encode().to_vec());
        }
        let port = self.params.name_server().ok_or(Errno::ENODATA)?;
        let host = self.host()?.ok_or(Errno::ENODATA)?;
        Ok(name_server::ask(host, port, service)?.encode().to_vec())
    }

    /// Returns an empty name: the device numbers its queue pairs when endpoints are enabled.
    fn own(&self) -> Vec<u8> {
        Name::default().encode().to_vec()
    }

    fn is_address(&self, bytes: &[u8]) -> bool {
        Name::decode(bytes).is_some_and(|name| name.encode() == bytes)
    }
}
