//! Receives that are posted before fi_enable(3): they are queued here, in order, and posted when
//! their endpoint is enabled.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::ffi::c_void;

use fabric_abi::*;

use crate::endpoint::{Bindings, SharedReceive};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_objects::cq::{Completion, ErrorCompletion};
use prov_objects::desc::Descs;
use prov_objects::request::{Receive, Select};

/// See the [module](self) description.
#[derive(Default)]
pub(super) struct EarlyReceives(Vec<Early>);

/// A queued [`Receive`].
struct Early {
    select: Select,
    buffers: AppIov,
    desc: Descs,
    peer: fi_addr_t,
    flags: u64,
    /// The address of the application's context.
    context: usize,
}

impl Early {
    fn receive(&mut self) -> Receive {
        Receive {
            select: self.select,
            buffers: self.buffers.take(),
            desc: self.desc,
            peer: self.peer,
            flags: self.flags,
            context: std::ptr::with_exposed_provenance_mut(self.context),
        }
    }

    /// Reports that it has ended without a message, with this error.
    fn fail<S: SharedReceive>(&self, bindings: &Bindings<S>, cause: Errno) {
        if let Some(cntr) = &bindings.counters.recv {
            cntr.count_error();
        }
        let (kind, tag) = match self.select {
            Select::Untagged => (FI_MSG, 0),
            Select::Tagged { tag, .. } => (FI_TAGGED, tag),
        };
        let flags = FI_RECV | kind | self.flags & FI_MULTI_RECV;
        if let Some(cq) = &bindings.rx_cq {
            let context = std::ptr::with_exposed_provenance_mut(self.context);
            let completion = Completion {
                tag,
                ..Completion::new(context, flags)
            };
            cq.write_error(ErrorCompletion {
                prov_errno: cause.number(),
                ..ErrorCompletion::new(completion, cause)
            });
        }
    }
}

impl EarlyReceives {
    /// Queues a receive; at most `most` of them.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if the queue is full, `-FI_EOPBADSTATE` for a peek or claim, since no message
    /// can have arrived.
    pub(super) fn post(&mut self, receive: &mut Receive, most: usize) -> Result {
        if receive.flags & (FI_PEEK | FI_CLAIM) != 0 {
            return Err(Errno::EOPBADSTATE);
        }
        if self.0.len() >= most {
            return Err(Errno::EAGAIN);
        }
        self.0.push(Early {
            select: receive.select,
            buffers: receive.buffers.take(),
            desc: receive.desc,
            peer: receive.peer,
            flags: receive.flags,
            context: receive.context.expose_provenance(),
        });
        bounded!(self.0, OPERATIONS);
        Ok(())
    }

    /// Cancels the oldest receive with this context, and reports that. The receive stays if nothing
    /// is bound that could report it.
    ///
    /// # Errors
    /// `-FI_ENOENT` if no receive was cancelled.
    pub(super) fn cancel<S: SharedReceive>(
        &mut self,
        context: *mut c_void,
        bindings: &Bindings<S>,
    ) -> Result {
        let is_it = |early: &Early| early.context == context.addr();
        let index = self.0.iter().position(is_it).ok_or(Errno::ENOENT)?;
        if bindings.rx_cq.is_none() && bindings.counters.recv.is_none() {
            return Err(Errno::ENOENT);
        }
        self.0.remove(index).fail(bindings, Errno::ECANCELED);
        Ok(())
    }

    /// Passes all of them to `post`, and reports those that it refuses as failed.
    pub(super) fn post_all<S: SharedReceive>(
        self,
        bindings: &Bindings<S>,
        post: impl Fn(&mut Receive) -> Result,
    ) {
        for mut early in self.0 {
            if let Err(error) = post(&mut early.receive()) {
                early.fail(bindings, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ptr::{null_mut, without_provenance_mut};

    use super::*;
    use crate::endpoint::NoSharedReceive;
    use crate::ffi::{Handle, Use};
    use prov_objects::cq::{Cq, CqConfig};

    fn receive(number: usize, flags: u64) -> Receive {
        Receive {
            select: Select::Tagged { tag: 7, ignore: 0 },
            buffers: AppIov::EMPTY,
            desc: Descs::NONE,
            peer: FI_ADDR_UNSPEC,
            flags,
            context: without_provenance_mut(number),
        }
    }

    fn bindings() -> (Handle<Cq>, Bindings<NoSharedReceive>) {
        let cq = Cq::new(CqConfig::default()).unwrap();
        let cq = Handle::new(cq, null_mut(), Vec::new());
        let bindings = Bindings {
            rx_cq: Some(Use::of(&cq)),
            ..Bindings::default()
        };
        (cq, bindings)
    }

    fn contexts(receives: EarlyReceives) -> Vec<usize> {
        let posted = RefCell::new(Vec::new());
        receives.post_all(&bindings().1, |receive| {
            posted.borrow_mut().push(receive.context.addr());
            Ok(())
        });
        posted.into_inner()
    }

    #[test]
    fn receives_are_posted_in_order_and_no_more_than_fit() {
        let mut early = EarlyReceives::default();
        for number in 1..=3 {
            early.post(&mut receive(number, 0), 3).unwrap();
        }
        assert_eq!(early.post(&mut receive(4, 0), 3), Err(Errno::EAGAIN));
        for look in [FI_PEEK, FI_CLAIM] {
            assert_eq!(
                early.post(&mut receive(4, look), 9),
                Err(Errno::EOPBADSTATE)
            );
        }
        assert_eq!(contexts(early), [1, 2, 3]);
    }

    #[test]
    fn a_cancelled_receive_is_reported_and_not_posted() {
        let (cq, bindings) = bindings();
        let mut early = EarlyReceives::default();
        for number in 1..=3 {
            early.post(&mut receive(number, 0), 9).unwrap();
        }
        let at = |number| without_provenance_mut(number);
        let nothing = Bindings::<NoSharedReceive>::default();
        assert_eq!(early.cancel(at(2), &nothing), Err(Errno::ENOENT));
        assert_eq!(early.cancel(at(5), &bindings), Err(Errno::ENOENT));
        early.cancel(at(2), &bindings).unwrap();
        assert_eq!(early.cancel(at(2), &bindings), Err(Errno::ENOENT));
        let error = cq.read_error().unwrap();
        assert_eq!(error.err, Errno::ECANCELED);
        assert_eq!(error.completion.context.addr(), 2);
        assert_eq!(error.completion.flags, FI_RECV | FI_TAGGED);
        assert_eq!(error.completion.tag, 7);
        assert_eq!(contexts(early), [1, 3]);
    }

    #[test]
    fn a_receive_that_is_refused_ends_with_the_error() {
        let (cq, bindings) = bindings();
        let mut early = EarlyReceives::default();
        early.post(&mut receive(1, 0), 9).unwrap();
        early.post_all(&bindings, |_| Err(Errno::EINVAL));
        let error = cq.read_error().unwrap();
        assert_eq!(error.err, Errno::EINVAL);
        assert_eq!(error.completion.context.addr(), 1);
    }
}
