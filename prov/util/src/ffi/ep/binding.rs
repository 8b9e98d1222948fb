//! What is bound to an endpoint (`fi_ep_bind`).

use std::sync::Arc;

use fabric_abi::*;

use super::super::object::{AnyFid, Class, Use};
use super::shared::SharedReceiveObject;
use crate::attr::{has_receives, has_transmits};
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::endpoint::{Bindings, SharedReceive};
use crate::eq::Eq;
use crate::errno::{Errno, Result};
use crate::progress::Progress;

impl<S: SharedReceive> Bindings<S> {
    /// Adds an object of a call to `fi_ep_bind`.
    pub(super) fn bind(&mut self, other: AnyFid<'_>, flags: u64) -> Result {
        if let Some(cq) = other.downcast::<Cq>() {
            check_flags(flags, FI_TRANSMIT | FI_RECV, FI_SELECTIVE_COMPLETION)?;
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
            check_flags(flags, all, 0)?;
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
        } else {
            check_flags(flags, 0, 0)?;
            if let Some(av) = other.downcast::<Av>() {
                occupy(&mut self.av, &Use::of(&av))
            } else if let Some(eq) = other.downcast::<Eq>() {
                occupy(&mut self.eq, &Use::of(&eq))
            } else {
                let shared = other.expect::<SharedReceiveObject<S>>()?;
                occupy(&mut self.shared, &Use::of(&shared))
            }
        }
    }

    /// `-FI_ENOCQ` unless there is a queue for each direction in which an endpoint with
    /// these capabilities has operations: counters come on top of it. `-FI_EOPBADSTATE`
    /// without the shared context that receives are to come from.
    pub(super) fn check(&self, caps: u64, shares_receives: bool) -> Result {
        let no_tx_cq = has_transmits(caps) && self.tx_cq.is_none();
        if no_tx_cq || has_receives(caps) && self.rx_cq.is_none() {
            return Err(Errno::ENOCQ);
        }
        if shares_receives && self.shared.is_none() {
            return Err(Errno::EOPBADSTATE);
        }
        Ok(())
    }

    /// Has what is bound drive `progress`; the event queue where `is_connected`. The
    /// events of other endpoints do not come from there, and the threading levels
    /// let another thread read them than reads what completes.
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

    /// Takes back [`Bindings::add_source`], and the events about `fid`.
    pub(super) fn remove_source(
        &self,
        progress: &Arc<dyn Progress>,
        is_connected: bool,
        fid: *mut fid,
    ) {
        for cq in self.cqs() {
            cq.remove_source(&for_completions(progress, cq));
        }
        for cntr in self.counters.iter() {
            cntr.remove_source(progress);
        }
        if let Some(eq) = &self.eq {
            if is_connected {
                eq.remove_source(&for_events(progress));
            }
            eq.forget(fid);
        }
    }

    fn cqs(&self) -> impl Iterator<Item = &Use<Cq>> {
        self.tx_cq.iter().chain(&self.rx_cq)
    }
}

/// `-FI_EBADFLAGS` unless `flags` has one of `needed`, if there are any, and
/// besides them none but `allowed`.
pub(super) fn check_flags(flags: u64, needed: u64, allowed: u64) -> Result {
    if flags & !(needed | allowed) != 0 || needed != 0 && flags & needed == 0 {
        return Err(Errno::EBADFLAGS);
    }
    Ok(())
}

/// Fills a place for one object; `-FI_EINVAL` where there is one already.
pub(super) fn occupy<T: Class>(place: &mut Option<Use<T>>, object: &Use<T>) -> Result {
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
    let own = progress.for_completions(cq);
    own.unwrap_or_else(|| progress.clone())
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::cq::CqConfig;
    use crate::endpoint::NoSharedReceive;
    use crate::ffi::Handle;
    use crate::wait::Attachment;

    /// Counts how often it is driven; for one queue there is something else.
    #[derive(Default)]
    struct Counted {
        driven: AtomicUsize,
        instead: Option<(usize, Arc<Counted>)>,
    }

    impl Progress for Counted {
        fn progress(&self) {
            self.driven.fetch_add(1, Ordering::Relaxed);
        }

        fn for_completions(&self, cq: &Cq) -> Option<Arc<dyn Progress>> {
            let (queue, progress) = self.instead.as_ref()?;
            match *queue == std::ptr::from_ref(cq).addr() {
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
    fn a_queue_drives_what_fills_it_and_nothing_else() {
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
            instead: Some((std::ptr::from_ref::<Cq>(&sent).addr(), filling.clone())),
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
        bindings.remove_source(&progress, true, null_mut());
        sent.drive();
        received.drive();
        assert_eq!(driven(), [1, 1]);
    }

    /// Another thread may read them than has the endpoint (`FI_THREAD_COMPLETION`).
    #[test]
    fn events_drive_what_is_connected_and_nothing_else() {
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
            bindings.remove_source(&progress, is_connected, null_mut());
            assert_eq!(driven(), usize::from(is_connected));
        }
    }
}
