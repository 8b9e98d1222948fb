//! The descriptors that wake a manager: the channel of its connections, its lost connections, and
//! the devices, which all managers of the process share.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prov_base::errno::Result;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

use super::Manager;
use crate::device::{Context, DeviceEvent, contexts};

/// The sources with events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ready {
    /// The channel.
    pub channel: bool,
    /// Whether connections are lost.
    pub lost: bool,
    /// Whether any device has an event.
    pub devices: bool,
    /// Devices without further events. Reported once for each.
    pub gone: Vec<Context>,
}

/// A descriptor for all of them.
pub struct Watch(OwnedFd);

const CHANNEL: u64 = 0;
const LOST: u64 = 1;
/// The number of the first device; the others follow.
const DEVICE: u64 = 2;

impl Watch {
    /// Watches a channel, the list of lost connections, and the devices that can be watched.
    pub fn new(channel: BorrowedFd<'_>, lost: BorrowedFd<'_>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, what| {
            epoll::add(
                &epoll,
                fd,
                epoll::EventData::new_u64(what),
                epoll::EventFlags::IN,
            )
        };
        add(channel, CHANNEL)?;
        add(lost, LOST)?;
        for (context, number) in contexts().iter().zip(DEVICE..) {
            let watched = context.ask_for_events().and_then(|()| {
                add(context.as_fd(), number)?;
                Ok(())
            });
            if let Err(error) = watched {
                log::warn!(target: crate::LOG.core, "no events of {context:?}: {error}");
            }
        }
        Ok(Watch(epoll))
    }

    /// Whether any source has an event now.
    pub fn has_some(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // An interrupted call may be repeated.
        poll(&mut fds, Some(&now)) != Ok(0)
    }

    /// Returns the sources with events now.
    pub fn ready(&self) -> Ready {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 8];
        let count = epoll::wait(&self.0, &mut events, Some(&now)).unwrap_or(0);
        let ready = sort(events.get(..count).unwrap_or_default(), contexts());
        for context in &ready.gone {
            // It would be reported for ever.
            let _ = epoll::delete(&self.0, context.as_fd());
        }
        ready
    }
}

/// Returns the sources of these events.
fn sort(events: &[epoll::Event], contexts: &[Context]) -> Ready {
    let mut ready = Ready::default();
    for event in events {
        let number = event.data.u64();
        let (flags, has_events) = (event.flags, epoll::EventFlags::IN);
        if number == CHANNEL {
            ready.channel = true;
        } else if number == LOST {
            ready.lost = true;
        } else if flags.contains(has_events) {
            ready.devices = true;
        } else if let Some(context) = contexts.get((number - DEVICE) as usize) {
            ready.gone.push(*context);
        }
    }
    ready
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The managers of the process.
static MANAGERS: Mutex<Vec<Weak<Manager>>> = Mutex::new(Vec::new());

/// Registers a manager for events of devices.
pub fn join(manager: &Arc<Manager>) {
    let mut managers = MANAGERS.lock().unwrap_or_else(PoisonError::into_inner);
    managers.retain(|known| known.strong_count() != 0);
    managers.push(Arc::downgrade(manager));
}

/// Reads the events of devices, and passes them on to all managers. The caller must not hold any of
/// their locks.
pub fn hear_devices() {
    for context in contexts() {
        while let Some(event) = context.next_event() {
            log(context, event);
            let managers = MANAGERS.lock().unwrap_or_else(PoisonError::into_inner);
            let all: Vec<_> = managers.iter().filter_map(Weak::upgrade).collect();
            drop(managers);
            all.iter()
                .for_each(|manager| manager.device_says(*context, event));
        }
    }
}

fn log(context: &Context, event: DeviceEvent) {
    match event {
        DeviceEvent::Other(_) => {
            log::debug!(target: crate::LOG.core, "{context:?}: {event:?}");
        }
        _ => log::warn!(target: crate::LOG.core, "{context:?}: {event:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake;

    #[test]
    fn each_device_that_was_removed_is_named() {
        let contexts: Vec<_> = ["one", "two", "three"].map(fake::context).into();
        let event = |data, flags| epoll::Event {
            flags,
            data: epoll::EventData::new_u64(data),
        };
        let events = [
            event(CHANNEL, epoll::EventFlags::IN),
            event(DEVICE, epoll::EventFlags::ERR),
            event(DEVICE + 2, epoll::EventFlags::HUP),
        ];
        let ready = sort(&events, &contexts);
        let gone = vec![contexts[0], contexts[2]];
        let expected = Ready {
            channel: true,
            lost: false,
            devices: false,
            gone,
        };
        assert_eq!(ready, expected);
        let ready = sort(&[event(DEVICE + 1, epoll::EventFlags::IN)], &contexts);
        assert!(ready.devices && !ready.channel && ready.gone.is_empty());
    }
}
