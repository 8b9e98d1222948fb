//! Restricts the attributes of objects to those that fi_getinfo(3) would return.

use fabric_abi::*;

use super::check::{check, check_rx, check_tx};
use super::{Base, Hints, Info, Mismatch, RxAttr, TxAttr};
use prov_base::errno::{Errno, Result};

/// The kinds of endpoints of a provider, for the objects of one fabric.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    bases: Vec<Base>,
    /// The log target of refusals.
    target: &'static str,
}

impl Offers {
    /// Creates the rule from the kinds that fi_getinfo(3) returns; without any, everything is
    /// admitted.
    pub fn new(bases: Vec<Base>, target: &'static str) -> Self {
        Offers { bases, target }
    }

    /// Checks whether `call` may open an object with these attributes, which the application may
    /// have changed since it got them. The capabilities of the contexts have no effect on an
    /// endpoint, so those of any kind are accepted.
    ///
    /// # Errors
    /// `-FI_EINVAL`, with the attribute in the log.
    pub fn admit(&self, call: &str, version: u32, info: &Info) -> Result {
        // The caller has already chosen the provider by opening its fabric.
        let nobodys = !self.caps();
        let asked = Hints {
            fabric: None,
            tx: Some(TxAttr {
                caps: info.tx.caps & nobodys,
                ..info.tx.clone()
            }),
            rx: Some(RxAttr {
                caps: info.rx.caps & nobodys,
                ..info.rx.clone()
            }),
            ..Hints::from(info.clone())
        };
        let kind = |base: &&Base| base.limits.ep.ep_type == info.ep.ep_type;
        self.judge(call, kind, |base| check(base, version, &asked))
    }

    /// The same for fi_srx_context(3). Its attributes are requests, so the caller opens the context
    /// whatever the outcome.
    ///
    /// # Errors
    /// Those of [`Offers::admit`].
    pub fn admit_receive(&self, attr: &RxAttr) -> Result {
        let kind = |base: &&Base| base.limits.ep.rx_ctx_cnt == FI_SHARED_CONTEXT;
        let asked = RxAttr {
            caps: 0,
            ..attr.clone()
        };
        // The modes are those of the domain.
        self.judge("fi_srx_context", kind, |base| {
            check_rx(&base.rx, u64::MAX, &asked)
        })
    }

    /// Whether a transmit context of a scalable endpoint that was opened with `given` may be
    /// opened with these attributes by `call`.
    ///
    /// # Errors
    /// `-FI_ENODATA`, with the attribute in the log.
    pub fn admit_transmit(&self, call: &str, asked: &TxAttr, given: &TxAttr) -> Result {
        let fits = |base: &Info| {
            let limits = TxAttr {
                caps: given.caps,
                size: given.size,
                ..base.tx.clone()
            };
            check_tx(&limits, u64::MAX, asked)
        };
        self.judge(call, |_| true, fits).map_err(|_| Errno::ENODATA)
    }

    /// [`Offers::admit_transmit`] of a receive context.
    ///
    /// # Errors
    /// Likewise.
    pub fn admit_context(&self, call: &str, asked: &RxAttr, given: &RxAttr) -> Result {
        let fits = |base: &Info| {
            let limits = RxAttr {
                caps: given.caps,
                size: given.size,
                ..base.rx.clone()
            };
            check_rx(&limits, u64::MAX, asked)
        };
        self.judge(call, |_| true, fits).map_err(|_| Errno::ENODATA)
    }

    /// Checks whether one of the kinds matches. If none does, the mismatch of the first kind for
    /// which `kind` is true is logged, as the most helpful one.
    fn judge(
        &self,
        call: &str,
        kind: impl Fn(&&Base) -> bool,
        fits: impl Fn(&Info) -> std::result::Result<(), Mismatch>,
    ) -> Result {
        let reason = |base: &Base| fits(&base.limits).err();
        if self.bases.is_empty() || self.bases.iter().any(|base| reason(base).is_none()) {
            return Ok(());
        }
        let nearest = self.bases.iter().find(kind).or(self.bases.first());
        if let Some(mismatch) = nearest.and_then(reason) {
            log::warn!(target: self.target, "{call}: {mismatch}");
        }
        Err(Errno::EINVAL)
    }

    /// Returns the capabilities of all kinds.
    pub fn caps(&self) -> u64 {
        Self::all_of(self.bases.iter())
    }

    /// Returns the capabilities of all kinds of this endpoint type.
    pub fn caps_of(&self, ep_type: fi_ep_type) -> u64 {
        let bases = self.bases.iter();
        Self::all_of(bases.filter(|base| base.limits.ep.ep_type == ep_type))
    }

    fn all_of<'a>(bases: impl Iterator<Item = &'a Base>) -> u64 {
        let all = bases.map(|base| base.limits.caps);
        all.reduce(|all, caps| all | caps).unwrap_or(u64::MAX)
    }

    /// Returns the largest receive queue of any kind.
    pub fn largest_rx_size(&self) -> usize {
        let sizes = self.bases.iter().map(|base| base.limits.rx.size);
        sizes.max().unwrap_or(usize::MAX)
    }

    /// Returns the flags that are allowed as defaults for operations of an endpoint of this type:
    /// of transmits and of receives.
    pub fn op_flags(&self, ep_type: fi_ep_type) -> (u64, u64) {
        let mut bases = self.bases.iter().map(|base| &base.limits);
        match bases.find(|base| base.ep.ep_type == ep_type) {
            Some(base) => (base.tx.op_flags, base.rx.op_flags),
            None => (u64::MAX, u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{DomainAttr, EpAttr, TxAttr, version};

    fn kind(ep_type: fi_ep_type, rx_ctx_cnt: usize, inject_size: usize) -> Base {
        let limits = Info {
            caps: FI_MSG | FI_SEND | FI_RECV,
            tx: TxAttr {
                inject_size,
                size: 64,
                op_flags: FI_COMPLETION | FI_INJECT_COMPLETE,
                ..TxAttr::default()
            },
            rx: RxAttr {
                size: 64,
                op_flags: FI_COMPLETION,
                ..RxAttr::default()
            },
            ep: EpAttr {
                ep_type,
                rx_ctx_cnt,
                ..EpAttr::default()
            },
            domain: DomainAttr {
                max_ep_rx_ctx: 1,
                max_ep_srx_ctx: 1,
                ..DomainAttr::default()
            },
            ..Info::default()
        };
        limits.into()
    }

    fn offers() -> Offers {
        let kinds = vec![
            kind(FI_EP_RDM, 1, 128),
            kind(FI_EP_MSG, 1, 64),
            kind(FI_EP_MSG, FI_SHARED_CONTEXT, 64),
        ];
        Offers::new(kinds, "test")
    }

    fn admit(info: &Info) -> Result {
        offers().admit("fi_endpoint", version(2, 0), info)
    }

    #[test]
    fn what_one_of_the_kinds_has_is_admitted() {
        for mut info in offers().bases.into_iter().map(|base| base.limits) {
            assert_eq!(admit(&info), Ok(()));
            info.tx.size = 1;
            info.rx.size = 0;
            assert_eq!(admit(&info), Ok(()));
        }
    }

    #[test]
    fn what_only_another_kind_has_is_not() {
        let mut info = kind(FI_EP_MSG, 1, 64).limits;
        info.tx.inject_size = 128;
        assert_eq!(admit(&info), Err(Errno::EINVAL));
        info.ep.ep_type = FI_EP_RDM;
        assert_eq!(admit(&info), Ok(()));
    }

    #[test]
    fn the_capabilities_of_contexts_may_be_those_of_any_kind() {
        let mut info = kind(FI_EP_MSG, 1, 64).limits;
        (info.tx.caps, info.rx.caps) = (FI_SEND, FI_SEND | FI_MSG);
        assert_eq!(admit(&info), Ok(()));
        info.rx.caps |= FI_TAGGED;
        assert_eq!(admit(&info), Err(Errno::EINVAL));
        let attr = info.rx;
        assert_eq!(offers().admit_receive(&attr), Ok(()));
    }

    #[test]
    fn the_fabric_is_the_callers_choice() {
        let mut info = kind(FI_EP_RDM, 1, 128).limits;
        info.fabric.prov_name = Some("a layer of another name".into());
        info.fabric.prov_version = u32::MAX;
        assert_eq!(admit(&info), Ok(()));
    }

    #[test]
    fn shared_contexts_have_the_bounds_of_receive_attributes() {
        let admit = |attr: RxAttr| offers().admit_receive(&attr);
        assert_eq!(admit(RxAttr::default()), Ok(()));
        let refused = [
            RxAttr {
                size: 65,
                ..RxAttr::default()
            },
            RxAttr {
                op_flags: FI_MULTI_RECV,
                ..RxAttr::default()
            },
        ];
        assert_eq!(refused.map(admit), [Err(Errno::EINVAL); 2]);
    }

    #[test]
    fn a_provider_that_reports_nothing_refuses_nothing() {
        let none = Offers::default();
        let mut info = Info::default();
        info.tx.size = usize::MAX;
        assert_eq!(none.admit("fi_domain", version(2, 0), &info), Ok(()));
        assert_eq!(none.caps(), u64::MAX);
        assert_eq!(none.op_flags(FI_EP_RDM), (u64::MAX, u64::MAX));
        let flags = (FI_COMPLETION | FI_INJECT_COMPLETE, FI_COMPLETION);
        assert_eq!(offers().op_flags(FI_EP_RDM), flags);
    }
}
