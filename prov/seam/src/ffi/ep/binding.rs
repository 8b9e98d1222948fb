//! The objects bound to an endpoint (fi_ep_bind(3)).

use std::sync::Arc;

use fabric_abi::*;

use super::super::object::{AnyFid, Class, Downcast, Use};
use super::super::stx::SharedTransmitObject;
use super::shared::SharedReceiveObject;
use crate::endpoint::{Bindings, SharedReceive, Side};
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_objects::attr::{has_receives, has_transmits};
use prov_objects::av::Av;
use prov_objects::cntr::Cntr;
use prov_objects::cq::Cq;
use prov_objects::eq::Eq;
use prov_objects::progress::{Progress, QueueName};

impl<S: SharedReceive> Bindings<S> {
    /// Handles a call of fi_ep_bind(3). A queue or a counter without a direction is accepted and
    /// has no effect. An event queue replaces the previous one, unless none is kept
    /// ([`Endpoint::IS_STRICT`]).
    ///
    /// [`Endpoint::IS_STRICT`]: crate::endpoint::Endpoint::IS_STRICT
    pub(in crate::ffi) fn bind(
        &mut self,
        other: AnyFid<'_>,
        flags: u64,
        is_strict: bool,
    ) -> Result {
        if let Some(cq) = other.downcast::<Cq>() {
            check_flags(flags, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)?;
            let cq = Use::of(&cq);
            let wants = |flag| flags & flag != 0;
            // One queue for each direction (fi_endpoint(3)).
            if wants(FI_TRANSMIT) && self.tx_cq.is_some() || wants(FI_RECV) && self.rx_cq.is_some()
            {
                return Err(Errno::EINVAL);
            }
            if wants(FI_TRANSMIT) {
                self.tx_cq = Some(cq.clone());
            }
            if wants(FI_RECV) {
                self.rx_cq = Some(cq);
            }
            Ok(())
        } else if let Some(cntr) = other.downcast::<Cntr>() {
            let mut places = self.counters.places();
            let all = places.iter().fold(0, |all, (flag, _)| all | flag);
            check_flags(flags, all)?;
            let mut wanted = places.iter().filter(|(flag, _)| flags & flag != 0);
            if wanted.any(|(_, place)| place.is_some()) {
                return Err(Errno::EINVAL);
            }
            for (flag, place) in &mut places {
                if flags & *flag != 0 {
                    **place = Some(Use::of(&cntr));
                }
            }
            Ok(())
        } else if let Some(shared) = other.downcast::<SharedReceiveObject<S>>() {
            // It replaces the previous one.
            self.shared = Some(Use::of(&shared));
            Ok(())
        } else if let Some(stx) = other.downcast::<SharedTransmitObject>() {
            // Likewise.
            self.stx = Some(stx.shared());
            Ok(())
        } else {
            if is_strict {
                check_flags(flags, 0)?;
            }
            if let Some(av) = other.downcast::<Av>() {
                return occupy(&mut self.av, &Use::of(&av));
            }
            let eq = other.expect::<Eq>()?;
            if is_strict {
                self.eq = Some(Use::of(&eq));
            }
            Ok(())
        }
    }

    /// Has transmits complete at the queue and the counters of the shared transmit
    /// context, if there is one, where the endpoint has none of its own.
    pub(super) fn share_transmits(&mut self) {
        if let Some(stx) = self.stx.clone() {
            stx.complete(self);
        }
    }

    /// Has the endpoint take the deferred receives of the shared receive context, if there is one.
    pub(super) fn share_deferred(&mut self) {
        if let Some(shared) = &self.shared
            && let Some(of_shared) = shared.transfers()
        {
            self.transfers.get_or_insert_default().share(of_shared);
        }
    }

    /// Returns `-FI_ENOCQ` unless there is a queue or a counter for each direction in which an
    /// endpoint with these capabilities has operations.
    pub(super) fn check(&self, caps: u64) -> Result {
        let lacks = |side| !self.report(side);
        match has_transmits(caps) && lacks(Side::Transmit)
            || has_receives(caps) && lacks(Side::Receive)
        {
            true => Err(Errno::ENOCQ),
            false => Ok(()),
        }
    }

    /// Whether the application hears of the operations of a side.
    pub fn report(&self, side: Side) -> bool {
        match side {
            Side::Transmit => self.tx_cq.is_some() || self.counters.count_transmits(),
            Side::Receive => self.rx_cq.is_some() || self.counters.recv.is_some(),
        }
    }

    /// Takes out what was bound for a side.
    pub(super) fn take(&mut self, side: Side) -> Self {
        let mut taken = Self::default();
        match side {
            Side::Transmit => taken.tx_cq = self.tx_cq.take(),
            Side::Receive => taken.rx_cq = self.rx_cq.take(),
        }
        let places = self.counters.places().into_iter();
        for ((flag, from), (_, to)) in places.zip(taken.counters.places()) {
            if side.directions() & flag != 0 {
                *to = from.take();
            }
        }
        taken
    }

    /// Returns whether a shared receive context is bound that was not in `before`.
    pub(super) fn takes_receives_elsewhere(&self, before: &Self) -> bool {
        match (&self.shared, &before.shared) {
            (Some(bound), Some(before)) => !is_same(bound, before),
            (bound, _) => bound.is_some(),
        }
    }

    /// Returns the bindings that drive the endpoint and were not in `before`.
    pub(super) fn beyond(&self, before: &Self) -> Self {
        let mut beyond = self.clone();
        let mut known = before.counters.clone();
        let places = beyond.counters.places().into_iter();
        for ((_, place), (_, known)) in places.zip(known.places()) {
            if known.is_some() {
                *place = None;
            }
        }
        if before.tx_cq.is_some() {
            beyond.tx_cq = None;
        }
        if before.rx_cq.is_some() {
            beyond.rx_cq = None;
        }
        if is_same_queue(&self.eq, &before.eq) {
            beyond.eq = None;
        }
        beyond
    }

    /// Returns only the event queue, if `after` has another one.
    pub(super) fn queue_replaced_in(&self, after: &Self) -> Self {
        Bindings {
            eq: self
                .eq
                .clone()
                .filter(|_| !is_same_queue(&self.eq, &after.eq)),
            ..Bindings::default()
        }
    }

    /// Makes the bound objects drive `progress`; the event queue only if `is_connected`: other
    /// endpoints have no events there, and the threading levels allow another thread to read events
    /// than completions.
    pub(super) fn add_source(&self, progress: &Arc<dyn Progress>, is_connected: bool) -> Result {
        for cq in self.cqs() {
            cq.add_source(for_completions(progress, cq))?;
        }
        for cntr in self.counters.iter() {
            cntr.add_source(progress.clone())?;
        }
        match &self.eq {
            Some(eq) if is_connected => eq.add_source(for_events(progress)),
            _ => Ok(()),
        }
    }

    /// Undoes [`Bindings::add_source`].
    pub(super) fn remove_source(&self, progress: &Arc<dyn Progress>, is_connected: bool) {
        for cq in self.cqs() {
            cq.remove_source(&for_completions(progress, cq));
        }
        for cntr in self.counters.iter() {
            cntr.remove_source(progress);
        }
        if let Some(eq) = &self.eq
            && is_connected
        {
            eq.remove_source(&for_events(progress));
        }
    }

    fn cqs(&self) -> impl Iterator<Item = &Use<Cq>> {
        self.tx_cq.iter().chain(&self.rx_cq)
    }
}

/// Returns `-FI_EBADFLAGS` for flags that are not in `allowed`.
fn check_flags(flags: u64, allowed: u64) -> Result {
    match flags & !allowed {
        0 => Ok(()),
        _ => Err(Errno::EBADFLAGS),
    }
}

fn is_same<T: Class>(a: &Use<T>, b: &Use<T>) -> bool {
    std::ptr::eq(a.handle().as_c(), b.handle().as_c())
}

fn is_same_queue(a: &Option<Use<Eq>>, b: &Option<Use<Eq>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => is_same(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Sets an empty binding; `-FI_EINVAL` if it is already set.
fn occupy<T: Class>(place: &mut Option<Use<T>>, object: &Use<T>) -> Result {
    if place.is_some() {
        return Err(Errno::EINVAL);
    }
    *place = Some(object.clone());
    Ok(())
}

fn for_events(progress: &Arc<dyn Progress>) -> Arc<dyn Progress> {
    progress.for_events().unwrap_or_else(|| progress.clone())
}

fn for_completions(progress: &Arc<dyn Progress>, cq: &Cq) -> Arc<dyn Progress> {
    let own = progress.for_completions(QueueName::of(cq));
    own.unwrap_or_else(|| progress.clone())
}

/// `-FI_EOPBADSTATE`, with the reason in the log, for a shared receive context that is bound to
/// an enabled endpoint of a provider that does not support it.
#[cold]
pub(super) fn bound_too_late() -> Errno {
    log::warn!(
        target: UTIL.ep_ctrl,
        "a shared receive context is bound before the endpoint is enabled"
    );
    Errno::EOPBADSTATE
}

/// The same for an endpoint that is enabled without its shared context.
#[cold]
pub(super) fn lacks_shared(direction: &str) -> Errno {
    log::warn!(
        target: UTIL.ep_ctrl,
        "the shared {direction} context of an endpoint (FI_SHARED_CONTEXT) is bound before the \
         endpoint is enabled"
    );
    Errno::EOPBADSTATE
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::endpoint::NoSharedReceive;
    use crate::ffi::Handle;
    use prov_objects::cq::CqConfig;
    use prov_objects::wait::Attachment;

    /// Counts how often it is driven; one queue has another progress engine.
    #[derive(Default)]
    struct Counted {
        driven: AtomicUsize,
        instead: Option<(QueueName, Arc<Counted>)>,
    }

    impl Progress for Counted {
        fn progress(&self) {
            self.driven.fetch_add(1, Ordering::Relaxed);
        }

        fn for_completions(&self, cq: QueueName) -> Option<Arc<dyn Progress>> {
            let (queue, progress) = self.instead.as_ref()?;
            match *queue == cq {
                true => Some(progress.clone()),
                false => None,
            }
        }

        fn wait_fd(&self) -> Option<RawFd> {
            None
        }

        fn prepare_wait(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_queue_drives_its_sources_and_nothing_else() {
        let queue = || {
            Handle::new(
                Cq::new(CqConfig::default()).unwrap(),
                null_mut(),
                Vec::new(),
            )
        };
        let (sent, received) = (queue(), queue());
        let filling = Arc::<Counted>::default();
        let endpoint = Arc::new(Counted {
            instead: Some((QueueName::of::<Cq>(&sent), filling.clone())),
            ..Counted::default()
        });
        let bindings = Bindings::<NoSharedReceive> {
            tx_cq: Some(Use::of(&sent)),
            rx_cq: Some(Use::of(&received)),
            ..Bindings::default()
        };
        let progress: Arc<dyn Progress> = endpoint.clone();
        let driven = || [&filling, &endpoint].map(|it| it.driven.load(Ordering::Relaxed));
        bindings.add_source(&progress, true).unwrap();
        sent.drive();
        assert_eq!(driven(), [1, 0]);
        received.drive();
        assert_eq!(driven(), [1, 1]);
        bindings.remove_source(&progress, true);
        sent.drive();
        received.drive();
        assert_eq!(driven(), [1, 1]);
    }

    /// Another thread than the endpoint's may read events (`FI_THREAD_COMPLETION`).
    #[test]
    fn events_drive_connected_endpoints_and_nothing_else() {
        for is_connected in [true, false] {
            let eq = Eq::new(Attachment::None, FI_VERSION(2, 0));
            let eq = Handle::new(eq, null_mut(), Vec::new());
            let bindings = Bindings::<NoSharedReceive> {
                eq: Some(Use::of(&eq)),
                ..Bindings::default()
            };
            let endpoint = Arc::<Counted>::default();
            let progress: Arc<dyn Progress> = endpoint.clone();
            let driven = || {
                let _ = eq.read(0, false, |_| ());
                endpoint.driven.load(Ordering::Relaxed)
            };
            bindings.add_source(&progress, is_connected).unwrap();
            assert_eq!(driven(), usize::from(is_connected));
            bindings.remove_source(&progress, is_connected);
            assert_eq!(driven(), usize::from(is_connected));
        }
    }
}
