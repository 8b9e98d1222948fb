//! A shared receive context with endpoints in other lanes, which were enabled before they were bound
//! to it: see [`cross_lane_srx`](crate::endpoints::cross_lane_srx).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use fabric_abi::{FI_CLAIM, FI_PEEK};
use prov_base::errno::Result;
use prov_util::av::Changes;
use prov_util::matching::MultiId;
use prov_util::request::Receive;

use crate::endpoints::inbox::Inbox;
use crate::endpoints::inbox::cross_lane_srx::{Answer, Receives, Sought};
use crate::endpoints::receiving::{Poster, Posting};
use crate::lane::sources::Sources as _;
use crate::lane::{Core, Lane, of_peer};
use crate::operation::EpKey;
use crate::receipt::InboxKey;
use crate::reports::Reports;

/// See the [module](self) description.
pub(super) struct CrossLaneSrx<C: Core> {
    /// Set when the first endpoint of another lane joins.
    reach: OnceLock<Arc<Reach<C>>>,
    members: Mutex<Vec<Member<C>>>,
}

/// The receives of the context, as the endpoints reach them.
pub(super) struct Reach<C: Core> {
    lane: Arc<Lane<C>>,
    inbox: InboxKey,
    /// How many receives have been posted since the first endpoint joined. Changed within the lock
    /// of the lane.
    posted: AtomicU64,
}

/// An endpoint in another lane.
struct Member<C: Core> {
    lane: Weak<Lane<C>>,
    ep: EpKey,
    /// Whether a message may wait for a receive. Set within the lock of the context's lane.
    waits: Arc<AtomicBool>,
}

impl<C: Core> Clone for Member<C> {
    fn clone(&self) -> Self {
        Member {
            lane: self.lane.clone(),
            ep: self.ep,
            waits: self.waits.clone(),
        }
    }
}

impl<C: Core> Member<C> {
    /// Enters its lane, unless the endpoint is closed.
    fn enter<R>(&self, act: impl FnOnce(&mut C) -> R) -> Option<R> {
        let lane = self.lane.upgrade()?;
        let mut core = lane.core();
        core.endpoints().get(self.ep)?;
        let done = act(&mut core);
        core.follow_up();
        Some(done)
    }
}

impl<C: Core> Reach<C> {
    /// Does something in the lane of the context, which is reported to one of the endpoints if
    /// nothing is bound to the context.
    fn reporting_to<R>(&self, members: &[Member<C>], act: impl FnOnce(&mut C) -> R) -> R {
        let reports_of = |member: &Member<C>| {
            let of = member.enter(|core| Some(core.endpoints().get(member.ep)?.reports.clone()));
            of.flatten()
        };
        let reports = members.iter().find_map(reports_of);
        let mut core = self.lane.core();
        core.endpoints().lend_reports(self.inbox, reports);
        let done = act(&mut core);
        core.endpoints().lend_reports(self.inbox, None);
        done
    }
}

impl<C: Core> Receives for Reach<C> {
    fn arrive(&self, message: &Sought, waits: &AtomicBool, before: Option<u64>) -> Answer {
        let mut core = self.lane.core();
        let posted = self.posted.load(Ordering::Relaxed);
        if before.is_some_and(|before| before != posted) {
            return Answer::Later(posted);
        }
        match core.endpoints().match_in(self.inbox, message) {
            Some(matched) => Answer::Receive(matched),
            None => {
                waits.store(true, Ordering::SeqCst);
                Answer::None
            }
        }
    }

    fn any_posted(&self) -> bool {
        let mut core = self.lane.core();
        let inbox = core.endpoints().inbox(self.inbox);
        inbox.is_some_and(Inbox::any_posted)
    }

    fn finish_multi(&self, tagged: bool, multi: MultiId) -> bool {
        let mut core = self.lane.core();
        core.endpoints().finish_multi(self.inbox, tagged, multi)
    }
}

impl<C: Core> Default for CrossLaneSrx<C> {
    fn default() -> Self {
        CrossLaneSrx {
            reach: OnceLock::new(),
            members: Mutex::default(),
        }
    }
}

impl<C: Core> CrossLaneSrx<C> {
    /// The receives, if there have been endpoints of other lanes. Asked within the lock of the
    /// context's lane.
    #[inline(always)]
    pub(super) fn reach(&self) -> Option<&Arc<Reach<C>>> {
        self.reach.get()
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member<C>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an endpoint of another lane take the receives of the context, which is `inbox` in
    /// `own`.
    ///
    /// # Errors
    /// Those of [`Endpoints::share_cross_lane`](crate::endpoints::Endpoints::share_cross_lane).
    pub(super) fn join(
        &self,
        own: &Arc<Lane<C>>,
        inbox: InboxKey,
        lane: &Arc<Lane<C>>,
        ep: EpKey,
    ) -> Result {
        let reach = self.reach.get_or_init(|| {
            Arc::new(Reach {
                lane: own.clone(),
                inbox,
                posted: AtomicU64::new(0),
            })
        });
        let receives: Arc<dyn Receives> = reach.clone();
        if lane.core().endpoints().takes_cross_lane(ep, &receives) {
            return Ok(());
        }
        let mut core = own.core();
        let shared = core.endpoints().inbox_mut(inbox);
        let reports = shared.map(|shared| {
            shared.slow_down();
            shared.reports.clone()
        });
        drop(core);
        let member = Member {
            lane: Arc::downgrade(lane),
            ep,
            waits: Arc::default(),
        };
        let waits = member.waits.clone();
        let mut members = self.members();
        members.retain(|member| member.enter(|_| ()).is_some());
        members.push(member);
        drop(members);
        let mut core = lane.core();
        let reports = reports.unwrap_or_default();
        let joined = core
            .endpoints()
            .share_cross_lane(ep, receives, waits, reports);
        core.follow_up();
        joined
    }

    /// Posts a receive to the context, for messages that arrive in any lane.
    ///
    /// # Errors
    /// Those of [`Endpoints::post`](crate::endpoints::Endpoints::post).
    #[cold]
    pub(super) fn receive(
        &self,
        reach: &Reach<C>,
        poster: Poster,
        receive: &mut Receive,
    ) -> Result {
        let members = self.members().clone();
        if poster.directed && receive.directed().is_some() {
            for member in &members {
                member.enter(|core| C::Sources::expects(core, member.ep));
            }
        }
        if receive.flags & (FI_PEEK | FI_CLAIM) != 0 && find(&members, poster, receive) {
            return Ok(());
        }
        if receive.flags & FI_PEEK != 0 {
            return reach.reporting_to(&members, |core| post(core, poster, receive));
        }
        let mut core = reach.lane.core();
        reach.posted.fetch_add(1, Ordering::Relaxed);
        post(&mut *core, poster, receive)?;
        drop(core);
        for member in &members {
            if member.waits.load(Ordering::SeqCst) {
                member.enter(|core| {
                    if core.endpoints().changes != Changes::now() {
                        core.follow_changes();
                    }
                    core.endpoints().seek_for(member.ep);
                });
            }
        }
        Ok(())
    }

    /// Does something in the lane of the context that may have to be reported to an endpoint.
    #[cold]
    pub(super) fn reporting<R>(&self, reach: &Reach<C>, act: impl FnOnce(&mut C) -> R) -> R {
        let members = self.members().clone();
        reach.reporting_to(&members, act)
    }

    /// Sets where what belongs to no endpoint is reported.
    pub(super) fn report_to(&self, reports: &Reports) {
        let members = self.members().clone();
        for member in &members {
            member.enter(|core| core.endpoints().report_cross_lane_to(member.ep, reports));
        }
    }
}

/// Posts a receive to an inbox of this lane.
///
/// # Errors
/// Those of [`Endpoints::post`](crate::endpoints::Endpoints::post).
#[inline]
pub(super) fn post<C: Core>(core: &mut C, poster: Poster, receive: &mut Receive) -> Result {
    if poster.directed && receive.directed().is_some() {
        return core.post_directed(poster, receive);
    }
    core.post_receive(poster, receive)
}

/// Looks for a message that waits at one of the endpoints. Returns whether there is one, which is
/// reported, or received.
fn find<C: Core>(members: &[Member<C>], poster: Poster, receive: &mut Receive) -> bool {
    if poster.directed && receive.directed().is_some() {
        of_peer(receive);
    }
    let mut members = members.iter();
    members.any(|member| {
        let found = member.enter(|core| {
            let endpoints = core.endpoints();
            let inbox = endpoints.get(member.ep).map(|ep| ep.inbox)?;
            let there = Poster { inbox, ..poster };
            endpoints.look(there, receive).ok()
        });
        found.flatten() == Some(Posting::Done)
    })
}
