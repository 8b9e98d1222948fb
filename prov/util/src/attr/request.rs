//! What a caller of fi_getinfo(3) passes, and what its rules say about it
//! whatever the addresses of the provider are.

use std::ffi::CStr;

use fabric_abi::*;

use super::{Base, Hints, Info, Value, check, fit};
use crate::errno::{Errno, Result};

/// The arguments of fi_getinfo(3) as a provider gets them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Request<'a> {
    /// Interface version of the caller.
    pub version: u32,
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`; other flags are the framework's.
    pub flags: u64,
    pub hints: Option<&'a Hints>,
    /// Where to say why an entry does not fit (see [`crate::logging`]).
    pub target: &'static str,
}

/// The two addresses that a request is about, as far as it names them.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Ends<A> {
    pub src: Option<A>,
    pub dest: Option<A>,
}

impl Request<'_> {
    /// Those of `bases` that fit the hints, narrowed to what was asked. The
    /// log says why others do not.
    ///
    /// # Errors
    /// `-FI_ENODATA` where nothing fits, `-FI_EINVAL` for `FI_SOURCE` without
    /// a name for the source.
    pub fn fitting(&self, bases: &[Base]) -> Result<Vec<Info>> {
        if self.flags & FI_SOURCE != 0 && self.node.is_none() && self.service.is_none() {
            return Err(Errno::EINVAL);
        }
        let mut fitting: Vec<Info> = Vec::new();
        for base in bases.iter().filter(|base| self.explain(base)) {
            let info = fit(base, self.version, self.hints);
            // Kinds of endpoints may differ in what was not asked for alone.
            if !fitting.contains(&info) {
                fitting.push(info);
            }
        }
        if fitting.is_empty() {
            Err(Errno::ENODATA)
        } else {
            Ok(fitting)
        }
    }

    /// The addresses that node and service name, which `named` looks up, and
    /// otherwise those in the hints, which `decode` reads. Node and service
    /// are the destination, or with `FI_SOURCE` the source; what stands in the
    /// hints for the same end does not count then.
    ///
    /// # Errors
    /// `-FI_ENODATA` where the hints hold something else than an address, and
    /// what `named` returns.
    pub fn ends<A>(
        &self,
        named: impl FnOnce() -> Result<A>,
        decode: impl Fn(&[u8]) -> Option<A>,
    ) -> Result<Ends<A>> {
        let named = match (self.node, self.service) {
            (None, None) => None,
            _ => Some(named()?),
        };
        let hinted = |end: fn(&Hints) -> &[u8]| match self.hints.map(end) {
            None | Some([]) => Ok(None),
            Some(bytes) => match decode(bytes) {
                Some(addr) => Ok(Some(addr)),
                None => {
                    log::info!(target: self.target, "the hints hold no address of this provider");
                    Err(Errno::ENODATA)
                }
            },
        };
        let (src, dest) = if self.flags & FI_SOURCE != 0 {
            (named, None)
        } else {
            (None, named)
        };
        Ok(Ends {
            src: match src {
                None => hinted(|hints| &hints.src_addr)?,
                src => src,
            },
            dest: match dest {
                None => hinted(|hints| &hints.dest_addr)?,
                dest => dest,
            },
        })
    }

    /// Whether the entry fits; says why where it does not.
    fn explain(&self, base: &Base) -> bool {
        let Some(hints) = self.hints else {
            return true;
        };
        match check(&base.limits, self.version, hints) {
            Ok(()) => true,
            Err(mismatch) => {
                let kind = Value::Named(base.limits.ep.ep_type.into(), FI_TYPE_EP_TYPE);
                log::info!(target: self.target, "{kind}: {mismatch}");
                false
            }
        }
    }
}
