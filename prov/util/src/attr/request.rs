//! The arguments of fi_getinfo(3), and the rules for them that do not depend on the type of
//! addresses.

use std::ffi::CStr;
use std::fmt::Display;

use fabric_abi::*;

use super::{Base, Hints, Info, Value, check, fit};
use prov_base::errno::{Errno, Result};

/// The arguments of fi_getinfo(3) as a provider gets them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Request<'a> {
    /// Interface version of the caller.
    pub version: u32,
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`; the framework handles the other flags.
    pub flags: u64,
    pub hints: Option<&'a Hints>,
    /// The log target for mismatches (see [`prov_base::logging`]).
    pub target: &'static str,
}

/// The two addresses of a request, as far as it names them.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Ends<A> {
    pub src: Option<A>,
    pub dest: Option<A>,
}

impl Request<'_> {
    /// Returns the entries of `bases` that match the hints, narrowed to them. Mismatches of the
    /// others are logged.
    ///
    /// # Errors
    /// `-FI_ENODATA` if nothing matches, `-FI_EINVAL` for `FI_SOURCE` without a node or service.
    pub fn fitting(&self, bases: &[Base]) -> Result<Vec<Info>> {
        if self.flags & FI_SOURCE != 0 && self.node.is_none() && self.service.is_none() {
            self.refuse(&"FI_SOURCE is set, and neither node nor service is given");
            return Err(Errno::EINVAL);
        }
        let mut fitting: Vec<Info> = Vec::new();
        for base in bases.iter().filter(|base| self.explain(base)) {
            let info = fit(base, self.version, self.hints);
            // Kinds of endpoints may differ only in attributes that were not requested.
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

    /// Returns the addresses of node and service, which `named` resolves, and otherwise those in
    /// the hints, which `decode` reads. Node and service are the destination, or the source with
    /// `FI_SOURCE`; the address of the same end in the hints is then ignored.
    ///
    /// # Errors
    /// `-FI_ENODATA` if the hints contain an invalid address, and those of `named`.
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
                    self.refuse(&"the hints hold no address of this provider");
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

    /// Returns whether the entry matches; logs the mismatch otherwise.
    fn explain(&self, base: &Base) -> bool {
        let Some(hints) = self.hints else {
            return true;
        };
        match check(&base.limits, self.version, hints) {
            Ok(()) => true,
            Err(mismatch) => {
                let kind = Value::Named(base.limits.ep.ep_type.into(), FI_TYPE_EP_TYPE);
                self.refuse(&format_args!("{kind}: {mismatch}"));
                false
            }
        }
    }

    /// Says why something that the provider has is not offered. Whoever asked can read it in
    /// the log, and the library collects it for those who found nothing.
    pub fn refuse(&self, reason: &dyn Display) {
        log::info!(target: self.target, "{reason}");
    }
}
