//! fi_srx_context(3): a receive context that several endpoints share.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use fabric_abi::FI_OPT_MIN_MULTI_RECV;
use prov_base::errno::{Errno, Result};
use prov_util::cntr::Cntr;
use prov_util::cq::Cq;
use prov_util::endpoint::{self, OptionValue};
use prov_util::ffi::ep::SharedReceiveObject;
use prov_util::ffi::srx::ImportedSrx;
use prov_util::ffi::{Handle, Use};
use prov_util::matching::ANY_SOURCE;
use prov_util::progress::Progress;
use prov_util::request::Receive;
use prov_util::transfers::Transfers;

use super::Provider;
use super::cross_lane_srx::{CrossLaneSrx, post};
use crate::endpoints::receiving::Poster;
use crate::lane::{Core, Lane};
use crate::operation::{Context, EpKey};
use crate::receipt::InboxKey;

/// See the [module](self) description.
pub struct SoftSharedReceive<P: Provider> {
    lane: Arc<Lane<P::Core>>,
    backing: Backing,
    /// The endpoints in other lanes that use it.
    cross_lane: CrossLaneSrx<P::Core>,
    /// Whether receives are matched by source (`FI_DIRECTED_RECV`).
    directed: bool,
}

/// Where the receives are.
#[derive(Clone, Copy)]
pub(super) enum Backing {
    Own(InboxKey),
    /// At another provider.
    Imported(ImportedSrx),
}

impl<P: Provider> SoftSharedReceive<P> {
    /// Creates a context for up to `most` posted receives, which are matched by source if they are
    /// `directed`.
    pub(super) fn new(lane: Arc<Lane<P::Core>>, most: usize, directed: bool) -> Self {
        let key = lane.core().endpoints().add_inbox(most, true);
        SoftSharedReceive {
            lane,
            backing: Backing::Own(key),
            cross_lane: CrossLaneSrx::default(),
            directed,
        }
    }

    /// Wraps the receives of another provider (fi_peer(3)).
    pub(super) fn imported(lane: Arc<Lane<P::Core>>, owner: ImportedSrx) -> Self {
        SoftSharedReceive {
            lane,
            backing: Backing::Imported(owner),
            cross_lane: CrossLaneSrx::default(),
            directed: false,
        }
    }

    /// Returns the lane of the endpoints that share the context.
    pub(super) fn lane(&self) -> &Arc<Lane<P::Core>> {
        &self.lane
    }

    /// Returns where the receives are.
    pub(super) fn backing(&self) -> Backing {
        self.backing
    }

    /// Has an enabled endpoint use the context.
    ///
    /// # Errors
    /// `-FI_EOPBADSTATE`, with the reason in the log, if the endpoint has the receives of another
    /// context in its lane or of another provider, or this context has those of another provider.
    pub(super) fn is_joined_by(&self, lane: &Arc<Lane<P::Core>>, ep: EpKey) -> Result {
        let joined = match self.backing {
            Backing::Own(inbox) if Arc::ptr_eq(&self.lane, lane) => {
                let mut core = lane.core();
                let joined = core.endpoints().share_late(ep, inbox);
                core.follow_up();
                joined
            }
            Backing::Own(inbox) => self.cross_lane.join(&self.lane, inbox, lane, ep),
            Backing::Imported(_) => Err(Errno::EOPBADSTATE),
        };
        joined.inspect_err(|_| {
            log::warn!(
                target: P::LOG.ep_ctrl,
                "an enabled endpoint does not change from one shared receive context to another, \
                 or to that of another provider (fi_peer(3))"
            );
        })
    }

    /// Returns its key in the lane; `-FI_ENOSYS` if it belongs to another provider.
    fn key(&self) -> Result<InboxKey> {
        match self.backing {
            Backing::Own(key) => Ok(key),
            Backing::Imported(_) => Err(Errno::ENOSYS),
        }
    }

    /// Does something in the lane that may have to be reported to an endpoint.
    fn reporting<R>(&self, act: impl FnOnce(&mut P::Core) -> R) -> R {
        match self.cross_lane.reach() {
            Some(reach) => self.cross_lane.reporting(reach, act),
            None => act(&mut self.lane.core()),
        }
    }

    fn poster(&self) -> Result<Poster> {
        Ok(Poster {
            inbox: self.key()?,
            ep: None,
            directed: self.directed,
        })
    }
}

impl<P: Provider> endpoint::SharedReceive for SoftSharedReceive<P> {
    #[inline(always)]
    fn receive_fast(&self, receive: &mut Receive) -> bool {
        let Ok(inbox) = self.key() else {
            return false;
        };
        if self.directed && receive.directed().is_some() {
            return false;
        }
        let mut core = self.lane.core();
        core.posts_fast() && core.endpoints().post_fast(inbox, receive, ANY_SOURCE)
    }

    #[inline]
    fn receive(&self, receive: &mut Receive) -> Result {
        let poster = self.poster()?;
        let mut core = self.lane.core();
        if let Some(reach) = self.cross_lane.reach() {
            drop(core);
            return self.cross_lane.receive(reach, poster, receive);
        }
        post(&mut *core, poster, receive)
    }

    fn refuse(&self, receive: &Receive, error: Errno, counts: bool) {
        if let Ok(poster) = self.poster() {
            self.reporting(|core| core.endpoints().refuse(poster, receive, error, counts));
        }
    }

    fn expects(&self, transfers: &Arc<Transfers>) -> Result {
        let mut core = self.lane.core();
        let inbox = core.endpoints().inbox_mut(self.key()?);
        inbox.ok_or(Errno::EOPBADSTATE)?.reports.transfers = Some(transfers.clone());
        Ok(())
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        let poster = self.poster()?;
        self.reporting(|core| core.endpoints().cancel(poster, Context::of(context)))
    }

    fn bind(&self, cq: Option<Use<Cq>>, cntr: Option<Use<Cntr>>) -> Result {
        let mut core = self.lane.core();
        let inbox = core.endpoints().inbox_mut(self.key()?);
        let reports = &mut inbox.ok_or(Errno::EOPBADSTATE)?.reports;
        reports.rx_cq = cq;
        reports.counters.recv = cntr;
        let reports = reports.clone();
        drop(core);
        self.cross_lane.report_to(&reports);
        Ok(())
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.lane.clone()
    }

    fn close(this: &Handle<SharedReceiveObject<Self>>) -> Result {
        let mut core = this.lane.core();
        if let Backing::Own(key) = this.backing {
            core.endpoints().close_inbox(key);
            core.follow_up();
        }
        Ok(())
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        let mut core = self.lane.core();
        let inbox = core.endpoints().inbox_mut(self.key()?);
        let inbox = inbox.ok_or(Errno::EOPBADSTATE)?;
        match name {
            FI_OPT_MIN_MULTI_RECV => Ok(OptionValue::Size(inbox.min_multi_recv())),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        let mut core = self.lane.core();
        let inbox = core.endpoints().inbox_mut(self.key()?);
        let inbox = inbox.ok_or(Errno::EOPBADSTATE)?;
        match (name, value) {
            (FI_OPT_MIN_MULTI_RECV, OptionValue::Size(bytes)) => {
                inbox.set_min_multi_recv(bytes);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}
