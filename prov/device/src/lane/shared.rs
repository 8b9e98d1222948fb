//! Receives that several endpoints share.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_base::sync::{Lock, LockKind};

use super::Lane;
use super::member::{NUMBER_BITS, NUMBER_MASK, NUMBERED, SHARED};
use super::receiver::Posted;
use crate::device::{Device, Local, ReceiveRequest, SharedQueue};

/// A shared queue, with the data to report of its receives. Endpoints of any lane may use it.
pub struct Shared<D: Device> {
    /// Not set for a queue with a number until its completion queue is known.
    queue: OnceLock<Arc<D::Shared>>,
    size: usize,
    posted: Arc<Lock<Table<D>>>,
    /// Where a queue with a number completes. Declared after the queue, which is dropped first.
    place: Mutex<Option<Completions<D>>>,
}

/// The lane in which a queue with a number completes, with space for its requests.
struct Completions<D: Device> {
    lane: Arc<Lane<D>>,
    number: u32,
    size: usize,
}

impl<D: Device> Drop for Completions<D> {
    fn drop(&mut self) {
        self.lane.part_with(self.number, self.size);
    }
}

/// The data to report of the receives.
pub(super) struct Table<D: Device> {
    places: Box<[Option<Posted>]>,
    free: Vec<u32>,
    /// Receives posted before there is a queue.
    early: Vec<(u32, D::Local)>,
    /// Whether its device is gone, so that no entry becomes free any longer.
    is_abandoned: bool,
}

impl<D: Device> Shared<D> {
    /// Creates a queue for up to `size` outstanding receives, for which `make` creates the device's.
    pub fn new(
        size: usize,
        kind: LockKind,
        make: impl FnOnce(usize) -> Result<Arc<D::Shared>>,
    ) -> Result<Arc<Self>> {
        let this = Self::without_queue(size, kind)?;
        let queue = make(this.size)?;
        let _ = this.queue.set(queue);
        Ok(Arc::new(this))
    }

    /// Creates a queue that will have a number: [`Shared::complete_in`] creates the device's, for
    /// which receives wait.
    pub fn with_number(size: usize, kind: LockKind) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::without_queue(size, kind)?))
    }

    fn without_queue(size: usize, kind: LockKind) -> Result<Self> {
        let places = u32::try_from(size.max(1)).map_err(|_| Errno::EINVAL)?;
        if places > NUMBER_MASK {
            return Err(Errno::EINVAL);
        }
        Ok(Shared {
            queue: OnceLock::new(),
            size: places as usize,
            place: Mutex::default(),
            posted: Arc::new(Lock::new(
                kind,
                Table {
                    places: vec![None; places as usize].into(),
                    free: (0..places).rev().collect(),
                    early: Vec::new(),
                    is_abandoned: false,
                },
            )),
        })
    }

    /// Makes a queue with a number complete in a lane, for messages of all endpoints that use it:
    /// `make` creates the device's, for as many receives. Returns its number for peers.
    /// `-FI_EINVAL` if it completes in another lane already, `-FI_ENOSPC` if that has no space.
    pub fn complete_in(
        &self,
        lane: &Arc<Lane<D>>,
        make: impl FnOnce(&Arc<D::Queue>, usize) -> Result<Arc<D::Shared>>,
    ) -> Result<u32> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = &*place {
            return match Arc::ptr_eq(&place.lane, lane) {
                true => Ok(place.number),
                false => Err(Errno::EINVAL),
            };
        }
        let queue = make(lane.queue(), self.size)?;
        let number = queue.number().ok_or(Errno::EINVAL)?;
        lane.make_place(number, self.size, self.posted.clone())?;
        *place = Some(Completions {
            lane: lane.clone(),
            number,
            size: self.size,
        });
        let mut table = self.posted.lock();
        for (number, mut local) in std::mem::take(&mut table.early) {
            if let Err(error) = post_to::<D>(&queue, number, &mut local) {
                // It is never posted, and ends with the context.
                log::warn!(target: D::LOG.ep_data, "a receive is lost: {error}");
            }
        }
        let _ = self.queue.set(queue);
        Ok(number)
    }

    /// Whether this is the id of a request in a shared queue.
    #[inline(always)]
    pub fn is_named(id: u64) -> bool {
        id & SHARED != 0
    }

    /// Returns the number of the queue that contains the request with this id, if it has one.
    #[inline]
    pub(super) fn number_of(id: u64) -> Option<u32> {
        let number = (id >> NUMBER_BITS) as u32 & NUMBER_MASK;
        (id & NUMBERED != 0).then_some(number)
    }

    /// Returns the queue. `-FI_EOPBADSTATE` if there is none yet.
    pub fn queue(&self) -> Result<&Arc<D::Shared>> {
        self.queue.get().ok_or(Errno::EOPBADSTATE)
    }

    /// Returns the number of its queue, if that has one.
    pub fn number(&self) -> Option<u32> {
        self.queue.get()?.number()
    }

    /// Returns the largest number of posted receives.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Posts a receive, as [`Receiver::post`](super::Receiver::post). `-FI_EAGAIN` if there is no
    /// space, `-FI_ENODEV` if it has been abandoned.
    pub fn post(&self, local: &mut D::Local, posted: Posted) -> Result {
        let mut table = self.posted.lock();
        let Some(&number) = table.free.last() else {
            return Err(table.refusal());
        };
        // A message may consume it immediately, and wait for the lock in `take`.
        match self.queue.get() {
            Some(queue) => post_to::<D>(queue, number, local)?,
            None => (table.early).push((number, std::mem::replace(local, D::Local::empty()))),
        }
        table.free.pop();
        if let Some(place) = table.places.get_mut(number as usize) {
            *place = Some(posted);
        }
        Ok(())
    }

    /// Removes the receive of a request.
    pub(super) fn take(&self, id: u64) -> Option<Posted> {
        take(&self.posted, id)
    }

    /// Removes all posted receives, for the thread that reports them. There will be no more.
    #[cold]
    pub(super) fn abandon(&self) -> Vec<Posted> {
        let mut table = self.posted.lock();
        table.is_abandoned = true;
        table.free.clear();
        table.early.clear();
        table.places.iter_mut().filter_map(Option::take).collect()
    }
}

/// Removes the receive of a request.
pub(super) fn take<D: Device>(posted: &Lock<Table<D>>, id: u64) -> Option<Posted> {
    let number = id as u32 & NUMBER_MASK;
    let mut table = posted.lock();
    let posted = table.places.get_mut(number as usize)?.take()?;
    if !table.is_abandoned {
        table.free.push(number);
    }
    Some(posted)
}

/// Posts the request of this entry.
#[inline]
fn post_to<D: Device>(queue: &D::Shared, place: u32, local: &mut D::Local) -> Result {
    let marks = match queue.number() {
        None => SHARED,
        Some(number) => SHARED | NUMBERED | u64::from(number) << NUMBER_BITS,
    };
    queue.post(ReceiveRequest {
        id: u64::from(place) | marks,
        local,
    })
}

impl<D: Device> Table<D> {
    #[cold]
    fn refusal(&self) -> Errno {
        match self.is_abandoned {
            true => Errno::ENODEV,
            false => Errno::EAGAIN,
        }
    }
}
