//! Asynchronous events of a device (ibv_get_async_event(3)).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use prov_base::errno::Result;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::Context;
use crate::sys::ibverbs::*;

/// An event, as far as it is relevant to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device has failed, or is gone.
    Failed,
    /// A port has gone down. Outstanding requests are retransmitted for a while, so that
    /// connections may survive.
    PortDown(u8),
    /// A port has come up.
    PortUp(u8),
    /// The queue pair with this number has failed.
    PairFailed(u32),
    /// An event that does not end a connection.
    Other(u32),
}

fn port(number: c_int) -> u8 {
    u8::try_from(number).unwrap_or(0)
}

impl AsFd for Context {
    /// Readable when [`Context::next_event`] has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: devices are never closed, so that the descriptor stays open.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }
}

impl Context {
    /// Makes [`Context::next_event`] non-blocking.
    pub fn ask_for_events(&self) -> Result {
        let fd = self.as_fd();
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        Ok(())
    }

    /// Returns the next event, if there is one. To be called after [`Context::ask_for_events`].
    pub fn next_event(&self) -> Option<DeviceEvent> {
        let verbs = self.libraries.verbs();
        let mut event = MaybeUninit::<ibv_async_event>::uninit();
        // SAFETY: the device is open, and the function fills `event` if it succeeds. The objects of
        // an event exist until it is acknowledged, which happens once, after their last use. The
        // union has a port's number for events of ports.
        unsafe {
            if (verbs.ibv_get_async_event)(self.as_ptr(), event.as_mut_ptr()) != 0 {
                return None;
            }
            let mut event = event.assume_init();
            let seen = match event.event_type {
                IBV_EVENT_DEVICE_FATAL => DeviceEvent::Failed,
                IBV_EVENT_PORT_ERR => DeviceEvent::PortDown(port(event.element.port_num)),
                IBV_EVENT_PORT_ACTIVE => DeviceEvent::PortUp(port(event.element.port_num)),
                IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                    DeviceEvent::PairFailed((*event.element.qp).qp_num)
                }
                other => DeviceEvent::Other(other),
            };
            (verbs.ibv_ack_async_event)(&mut event);
            Some(seen)
        }
    }
}
