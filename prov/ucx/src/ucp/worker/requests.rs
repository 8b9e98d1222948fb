//! What UCP is told about an operation, and what it says when the operation begins.

use std::ptr::null_mut;

use libc::iovec;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};

use super::{
    Buffer, Done, NONE, OperationMemory, Place, Posted, Slot, Worker, failure, leak, received, sent,
};
use crate::sys::*;

const NOTHING: iovec = iovec {
    iov_base: null_mut(),
    iov_len: 0,
};

impl<T> Worker<T> {
    /// Takes a free place for an operation.
    #[inline]
    pub(super) fn begin(&mut self, operation: T) -> usize {
        if let Some(free) = self.free.pop()
            && let Some(place) = self.places.get_mut(free)
        {
            place.operation = Some(operation);
            return free;
        }
        let place = self.places.len();
        self.places.push(Place {
            slot: leak(Slot {
                sink: self.sink,
                place,
                release: self.calls().ucp_request_free,
            }),
            operation: Some(operation),
            request: null_mut(),
            key: None,
            loan: AppIov::EMPTY,
            memory: leak(OperationMemory {
                copy: Vec::new(),
                segments: [NOTHING; IOV_LIMIT],
            }),
        });
        place
    }

    /// Takes an operation out of its place, with the memory that UCP has accessed.
    #[inline]
    pub(super) fn end(&mut self, place: usize) -> Option<(T, AppIov)> {
        let at = self.places.get_mut(place)?;
        let operation = at.operation.take()?;
        at.request = null_mut();
        at.key = None;
        let memory = at.loan.take();
        self.free.push(place);
        Some((operation, memory))
    }

    /// Returns the memory of an operation as UCP takes it; it is valid until the operation ends.
    #[inline]
    pub(super) fn buffer(&mut self, place: usize, memory: &AppIov, is_inject: bool) -> Buffer {
        let plain = Buffer {
            address: memory.address(),
            count: memory.len(),
            is_vector: false,
        };
        let pieces = memory.pieces();
        if !is_inject && pieces.len() < 2 {
            return plain;
        }
        let Some(at) = self.places.get_mut(place) else {
            return plain;
        };
        // SAFETY: the memory of a place lives as long as the worker, and UCP uses none of it: the
        // operation has not begun.
        let own = unsafe { at.memory.as_mut() };
        if is_inject {
            own.copy.clear();
            memory.append_to(&mut own.copy);
            return Buffer {
                address: own.copy.as_mut_ptr().cast(),
                ..plain
            };
        }
        for (segment, piece) in own.segments.iter_mut().zip(pieces) {
            *segment = *piece;
        }
        Buffer {
            address: own.segments.as_mut_ptr().cast(),
            count: pieces.len(),
            is_vector: true,
        }
    }

    /// Returns the parameters of an operation; without a place, of one without a callback.
    #[inline]
    pub(super) fn params(&self, place: Option<usize>, is_vector: bool) -> ucp_request_param_t {
        let slot = place.and_then(|place| self.places.get(place));
        let slot = slot.map_or(null_mut(), |place| place.slot.as_ptr().cast());
        let mut op_attr_mask = match place {
            Some(_) => UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            None => 0,
        };
        if is_vector {
            op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        }
        ucp_request_param_t {
            op_attr_mask,
            flags: 0,
            request: null_mut(),
            cb: callback { send: sent },
            datatype: UCP_DATATYPE_IOV,
            user_data: slot,
            reply_buffer: null_mut(),
            memory_type: 0,
            recv_info: null_mut(),
            memh: null_mut(),
        }
    }

    /// Returns the parameters of a receive. Its callback is called in every case, since only that
    /// gets the description of the message.
    #[inline]
    pub(super) fn receive_params(&self, place: usize, buffer: &Buffer) -> ucp_request_param_t {
        let mut params = self.params(Some(place), buffer.is_vector);
        params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        params.cb = callback { recv: received };
        params
    }

    /// [`Worker::posted`] for an operation that leaves its memory to the application if it
    /// `is_inject`.
    #[inline]
    pub(super) fn posted_with(
        &mut self,
        place: usize,
        request: ucs_status_ptr_t,
        memory: &mut AppIov,
        is_inject: bool,
    ) -> Result<Posted<T>> {
        match is_inject {
            true => self.posted(place, request, &mut AppIov::default()),
            false => self.posted(place, request, memory),
        }
    }

    /// Interprets what UCP returns for an operation. Unless that is an error, the memory is taken:
    /// into the operation's place while UCP accesses it.
    #[inline]
    pub(super) fn posted(
        &mut self,
        place: usize,
        request: ucs_status_ptr_t,
        memory: &mut AppIov,
    ) -> Result<Posted<T>> {
        if let Some(failed) = failure(request) {
            drop(self.end(place));
            return Err(failed.into());
        }
        let ended = match request.is_null() {
            true => Some((Ok(()), NONE)),
            // SAFETY: the sink lives as long as the worker, and no function of UCP is running.
            false => unsafe { self.sink.as_mut() }
                .pop_back_if(|(ended, ..)| *ended == place)
                .map(|(_, outcome, arrived)| (outcome, arrived)),
        };
        match ended {
            Some((outcome, arrived)) => {
                let (operation, _) = self.end(place).ok_or(Errno::EINVAL)?;
                let done = Done {
                    outcome,
                    arrived,
                    memory: memory.take(),
                };
                Ok(Posted::Done(operation, done))
            }
            None => {
                if let Some(place) = self.places.get_mut(place) {
                    place.request = request;
                    place.loan.assign(memory);
                }
                Ok(Posted::Pending)
            }
        }
    }
}
