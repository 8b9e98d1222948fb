//! The arguments of fi_getinfo(3), and the rules for them that do not depend on the type of
//! addresses.

use std::ffi::CStr;
use std::fmt::Display;

use fabric_abi::*;

use super::mismatch::ENDPOINT_TYPE;
use super::{Base, Hints, Info, Mismatch, Value, check, fit};
use prov_base::errno::{Errno, Result};

/// Flag of requests by a provider that is layered over others: core providers only. Part of the
/// internal interface between the library and its providers.
pub const CORE_ONLY: u64 = 1 << 59;

/// The arguments of fi_getinfo(3) as a provider gets them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Request<'a> {
    /// Interface version of the caller.
    pub version: u32,
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`, [`CORE_ONLY`]; the framework handles the other flags.
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
            self.refuse_layer(bases);
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
                if self.is_reason(base, hints, &mismatch) {
                    let kind = Value::Named(base.limits.ep.ep_type.into(), FI_TYPE_EP_TYPE);
                    self.refuse(&format_args!("{kind}: {mismatch}"));
                }
                false
            }
        }
    }

    /// Whether a mismatch tells the caller something. An entry for shared receive contexts is none
    /// that a caller misses who does not ask for one, and endpoints of other types none that a
    /// layered provider, whose choice the type is, could use ([`Request::refuse_layer`]).
    fn is_reason(&self, base: &Base, hints: &Hints, mismatch: &Mismatch) -> bool {
        let shares = |contexts: usize| contexts == FI_SHARED_CONTEXT;
        let is_for_others = shares(base.limits.ep.rx_ctx_cnt)
            && !hints.ep.as_ref().is_some_and(|ep| shares(ep.rx_ctx_cnt));
        let is_of_layer = self.flags & CORE_ONLY != 0 && mismatch.attribute == ENDPOINT_TYPE;
        !is_for_others && !is_of_layer
    }

    /// Says that a provider cannot be layered over if it has no endpoints of the type for that.
    fn refuse_layer(&self, bases: &[Base]) {
        let wanted = self.hints.and_then(|hints| hints.ep.as_ref());
        let wanted = wanted.map_or(FI_EP_UNSPEC, |ep| ep.ep_type);
        let has = |base: &Base| [FI_EP_UNSPEC, wanted].contains(&base.limits.ep.ep_type);
        if self.flags & CORE_ONLY != 0 && wanted != FI_EP_UNSPEC && !bases.iter().any(has) {
            let wanted = Value::Named(wanted.into(), FI_TYPE_EP_TYPE);
            self.refuse(&format_args!(
                "it has no endpoints of type {wanted} to be layered over"
            ));
        }
    }

    /// Says why something that the provider has is not offered. Whoever asked can read it in
    /// the log, and the library collects it for those who found nothing.
    pub fn refuse(&self, reason: &dyn Display) {
        log::info!(target: self.target, "{reason}");
    }
}
