//! Groups that break.
//!
//! A member that cannot continue notifies all others, and the group is broken: its operations end
//! with an error at each member, and no more can be started.
//!
//! No member waits forever, even if it misses that notification, whose sender may be gone before it
//! arrives: each receive names a member, and ends with an error when that member ends
//! (`FI_PEER_TRANSFER`), and a member that is notified notifies all others in its turn, since any of
//! them may wait for it. What others have sent to it for
//! these operations, before they knew, is received and dropped: the operation of a member ends when
//! its sends have.
//!
//! A notification may come from any member, so that its receive names none. What comes from
//! elsewhere is dropped: anybody can compute the id under which a group is joined.

use fabric_abi::{FI_ADDR_UNSPEC, FI_INJECT, fi_addr_t};
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::desc::Descs;
use prov_util::ffi::ep::TransferOwner;
use prov_util::request::{Receive, Select, Tag, Transmit};

use super::{Engine, Owner, context};
use crate::tags::GroupId;

/// Receives notifications of failures of the group at `address` that are sent under `id`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    pub address: fi_addr_t,
    pub id: GroupId,
}

/// What has yet to be posted.
#[derive(Default)]
pub struct Failures {
    /// Notifications, each with the member that gets it.
    news: Vec<(fi_addr_t, GroupId)>,
    /// Receives that drop the messages of broken groups.
    sinks: Vec<GroupId>,
    /// Receives of notifications.
    watches: Vec<Watch>,
}

impl Failures {
    /// Whether notifications have yet to be sent.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Whether receives have yet to be posted.
    pub fn lacks_receives(&self) -> bool {
        !self.sinks.is_empty() || !self.watches.is_empty()
    }
}

impl Engine {
    /// Posts a receive for notifications.
    ///
    /// # Errors
    /// Those of the owner.
    pub(super) fn watch(&mut self, owner: &TransferOwner, watch: Watch) -> Result {
        let name = self.name();
        let group = self.groups.get_mut(&watch.address).ok_or(Errno::EINVAL)?;
        let (tag, ignore) = (watch.id.failure(), 0);
        owner.receive(&receive_of_any(tag, ignore, name))?;
        group.watches.push(name);
        self.messages.insert(name, Owner::Watch(watch));
        bounded!(self.messages, OPERATIONS);
        Ok(())
    }

    /// Posts a receive for notifications, as soon as the owner has room.
    pub(super) fn keep_watching(&mut self, owner: &TransferOwner, watch: Watch) {
        // With another error the endpoint receives nothing more, and the group's operations fail.
        if self.watch(owner, watch) == Err(Errno::EAGAIN) {
            self.failures.watches.push(watch);
            bounded!(self.failures.watches, OPERATIONS);
        }
    }

    /// Handles the end of a receive for notifications; `source` is where one came from.
    pub(super) fn watch_ended(
        &mut self,
        owner: &TransferOwner,
        name: u64,
        watch: Watch,
        source: Result<fi_addr_t>,
    ) {
        let Some(group) = self.groups.get_mut(&watch.address) else {
            return;
        };
        group.watches.retain(|other| *other != name);
        let source = match source {
            Ok(source) => source,
            // It has been cancelled, or the endpoint is closed.
            Err(Errno::ECANCELED) => return,
            // The message was no notification: those have no bytes.
            Err(_) => FI_ADDR_UNSPEC,
        };
        if group.broken.is_some() || !group.awaits(watch.id) {
            return;
        }
        if source == FI_ADDR_UNSPEC || !group.members.contains(&source) {
            return self.keep_watching(owner, watch);
        }
        // The notifications of others by its sender may be lost, and some wait for this member in
        // operations that it will not start.
        let members = group.members.len();
        self.notify(watch.address, 0..members);
        self.break_group(owner, watch.address, Errno::ECONNABORTED);
    }

    /// Ends the receives of notifications under the id that no member uses any more.
    pub(super) fn end_watches(&mut self, owner: &TransferOwner, address: fi_addr_t) {
        let Some(group) = self.groups.get(&address) else {
            return;
        };
        self.failures
            .watches
            .retain(|watch| watch.address != address || group.awaits(watch.id));
        for name in &group.watches {
            if let Some(Owner::Watch(watch)) = self.messages.get(name)
                && !group.awaits(watch.id)
            {
                let _ = owner.cancel(*name as usize);
            }
        }
    }

    /// Breaks the group of an operation that has failed, and notifies all members.
    pub(super) fn tell_of_failure(&mut self, owner: &TransferOwner, name: u64) {
        let Some(operation) = self.operations.get(&name) else {
            return;
        };
        let Some(error) = operation.failed else {
            return;
        };
        let address = operation.group;
        if let Some(group) = self.groups.get(&address)
            && group.broken.is_none()
        {
            self.notify(address, 0..group.members.len());
            self.break_group(owner, address, error);
        }
    }

    /// Queues notifications of the failure of a group for members that have not been notified.
    pub(super) fn notify(&mut self, address: fi_addr_t, ranks: impl IntoIterator<Item = usize>) {
        let Some(group) = self.groups.get_mut(&address) else {
            return;
        };
        for rank in ranks {
            if rank != group.rank
                && let Some(member) = group.members.get(rank)
                && group.notified.insert(rank)
            {
                let news = group.ids().map(|id| (*member, id));
                self.failures.news.extend(news);
            }
        }
    }

    /// Breaks a group: its operations end.
    fn break_group(&mut self, owner: &TransferOwner, address: fi_addr_t, error: Errno) {
        let Some(group) = self.groups.get_mut(&address) else {
            return;
        };
        if group.broken.is_none() {
            group.broken = Some(error);
            self.failures.sinks.extend(group.ids());
        }
        let of_group = self.operations.iter_mut();
        let of_group = of_group.filter(|(_, operation)| operation.group == address);
        let mut broken = Vec::new();
        let mut receivers = Vec::new();
        for (name, operation) in of_group {
            operation.fail(error);
            broken.push(*name);
            receivers.extend(operation.receivers());
        }
        self.notify(address, receivers);
        self.send_news(owner);
        // Receives from members that will not send are cancelled, and end with an error.
        let receives: Vec<u64> = self
            .messages
            .iter()
            .filter(|(_, whose)| match whose {
                Owner::Operation { name, receives } => receives.is_some() && broken.contains(name),
                Owner::Watch(_) | Owner::News | Owner::Sink(_) => false,
            })
            .map(|(message, _)| *message)
            .collect();
        for message in receives {
            let _ = owner.cancel(message as usize);
        }
        self.post_receives(owner);
        for name in broken {
            if self
                .operations
                .get(&name)
                .is_some_and(|operation| operation.under_way() == 0)
            {
                self.end(owner, name);
            }
        }
    }

    pub(super) fn send_news(&mut self, owner: &TransferOwner) {
        for (member, id) in std::mem::take(&mut self.failures.news) {
            let message = self.name();
            let sent = owner.transmit(&Transmit {
                tag: Tag::Value(id.failure()),
                buffers: AppIov::EMPTY,
                desc: Descs::NONE,
                peer: member,
                data: 0,
                flags: FI_INJECT,
                context: context(message),
            });
            match sent {
                Ok(()) => {
                    self.messages.insert(message, Owner::News);
                    bounded!(self.messages, OPERATIONS);
                }
                Err(Errno::EAGAIN) => self.failures.news.push((member, id)),
                // A member that cannot be reached detects the failure itself, or has ended.
                Err(_) => {}
            }
        }
    }

    /// Handles the end of a receive that has dropped a message.
    pub(super) fn sink_ended(&mut self, owner: &TransferOwner, id: GroupId) {
        self.failures.sinks.push(id);
        bounded!(self.failures.sinks, OPERATIONS);
        self.post_receives(owner);
    }

    /// Posts the receives of notifications, and those that drop the messages of broken groups, one
    /// for each id. These outlive the membership, since others may send until they know of the
    /// failure.
    pub(super) fn post_receives(&mut self, owner: &TransferOwner) {
        for watch in std::mem::take(&mut self.failures.watches) {
            self.keep_watching(owner, watch);
        }
        for id in std::mem::take(&mut self.failures.sinks) {
            let message = self.name();
            let (tag, ignore) = id.any_message();
            match owner.receive(&receive_of_any(tag, ignore, message)) {
                Ok(()) => {
                    self.messages.insert(message, Owner::Sink(id));
                    bounded!(self.messages, OPERATIONS);
                }
                Err(Errno::EAGAIN) => self.failures.sinks.push(id),
                // The endpoint receives nothing more.
                Err(_) => {}
            }
        }
    }
}

/// A receive without memory, from anybody.
fn receive_of_any(tag: u64, ignore: u64, name: u64) -> Receive {
    Receive {
        select: Select::Tagged { tag, ignore },
        buffers: AppIov::EMPTY,
        desc: Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: 0,
        context: context(name),
    }
}
