//! The groups of an endpoint and their operations in progress.
//!
//! Members start their operations on a group in the same order, so that a number identifies the
//! operation of a message. A member that cannot continue notifies all others, and the group is
//! broken: its operations end with an error at each member, and no more can be started.
//!
//! No member waits forever, even if it misses that notification, whose sender may be gone before it
//! arrives: each receive names a member, and ends with an error when that member ends
//! (`FI_PEER_TRANSFER`), and a member that is notified notifies all others in its turn, since any of
//! them may wait for it. What others have sent to it for
//! these operations, before they knew, is received and dropped: the operation of a member ends when
//! its sends have.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ptr::{with_exposed_provenance_mut, without_provenance_mut};

use fabric_abi::*;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::collective::{Collective, Join, Kind, MemberView};
use prov_util::cq::{Completion, ErrorCompletion};
use prov_util::desc::Descs;
use prov_util::endpoint::Standing;
use prov_util::ffi::FidRef;
use prov_util::ffi::ep::TransferOwner;
use prov_util::request::{Receive, Select, Tag, Transmit};

use crate::memory::Memories;
use crate::operation::{Operation, Then, Wants};
use crate::program::{Program, program, receivers};
use crate::tags::GroupId;

/// A group that the endpoint has joined, or is joining.
struct Group {
    members: Vec<fi_addr_t>,
    rank: usize,
    id: GroupId,
    /// The number of the next operation.
    next: u16,
    is_joined: bool,
    /// Why no further operation can succeed.
    broken: Option<Errno>,
    /// The receive that waits for the notification of a failure.
    watch: Option<u64>,
    /// The ranks that have been notified of the failure, or will be.
    notified: HashSet<usize>,
}

/// The owner of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// An operation; for a receive, which can be cancelled, with the number of bytes expected.
    Operation { name: u64, receives: Option<usize> },
    /// The receive for the notification of a failure of the group.
    Watch(fi_addr_t),
    /// A notification of a failure, sent to a member.
    News,
    /// A receive that takes a message of a broken group and drops it.
    Sink(GroupId),
}

/// A result for the application.
pub enum Report {
    /// A completion, which is written if `true`, and always counted.
    Done(Completion, bool),
    /// An error completion.
    Failed(ErrorCompletion),
    /// A group has been joined, or the join has failed.
    Joined(FidRef, usize, Result),
}

/// See the [module](self) description.
pub struct Engine {
    groups: HashMap<fi_addr_t, Group>,
    operations: HashMap<u64, Operation>,
    /// Messages in progress, by the contexts with which they are posted.
    messages: HashMap<u64, Owner>,
    /// Number of groups of the same members that have existed.
    instances: HashMap<u64, u64>,
    /// Members that have yet to be notified of a failure.
    news: Vec<(fi_addr_t, GroupId)>,
    /// Broken groups for which a receive has yet to be posted that drops a message.
    sinks: Vec<GroupId>,
    next_name: u64,
    /// Operations that wait until messages can be posted, in order.
    stalled: Vec<u64>,
    /// Largest number of bytes of a message whose send is not waited for.
    inject: usize,
    /// Results that have yet to be reported.
    reports: Vec<Report>,
}

/// The first address of a group: above the indexes of address vectors, and of their sets.
const FIRST_GROUP: u64 = 3 << 61;

impl Engine {
    /// Creates an engine; the memory of messages of up to `inject` bytes belongs to the sender
    /// again when they are posted.
    pub fn new(inject: usize) -> Self {
        Engine {
            groups: HashMap::new(),
            operations: HashMap::new(),
            messages: HashMap::new(),
            instances: HashMap::new(),
            news: Vec::new(),
            sinks: Vec::new(),
            next_name: FIRST_GROUP,
            stalled: Vec::new(),
            inject,
            reports: Vec::new(),
        }
    }

    fn name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }

    /// Returns an address for a new group.
    pub fn new_group(&mut self) -> fi_addr_t {
        self.name()
    }

    /// Returns the results to report.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// Whether something waits until messages can be posted.
    pub fn is_stalled(&self) -> bool {
        !self.may_sleep() || !self.sinks.is_empty()
    }

    /// Whether what waits can be posted only after the endpoint has had an event: there is room for
    /// another receive when one has ended.
    pub fn may_sleep(&self) -> bool {
        self.stalled.is_empty() && self.news.is_empty()
    }

    /// Returns the endpoint's rank in a group, and that of `root`.
    ///
    /// # Errors
    /// `-FI_EINVAL` if the group is not joined, or `root` is not a member of it.
    pub fn standing(&self, group: fi_addr_t, root: Option<fi_addr_t>) -> Result<Standing> {
        let group = self.groups.get(&group).filter(|group| group.is_joined);
        let group = group.ok_or(Errno::EINVAL)?;
        let root = match root {
            None => 0,
            Some(root) => {
                let found = group.members.iter().position(|member| *member == root);
                found.ok_or(Errno::EINVAL)?
            }
        };
        Ok(Standing {
            rank: group.rank,
            members: group.members.len(),
            root,
        })
    }

    /// Joins a group: executes a barrier of its members, after which it is joined.
    ///
    /// # Errors
    /// Those of the owner for the receive of failure notifications.
    pub fn join(&mut self, owner: &TransferOwner, address: fi_addr_t, join: Join) -> Result {
        // All members join the groups of these members in the same order.
        let instance = self.instances.get(&join.identity).copied().unwrap_or(0);
        let id = GroupId::of(join.identity, instance);
        let place = MemberView {
            rank: join.rank,
            members: join.members.len(),
            count: 0,
            size: 0,
        };
        self.groups.insert(
            address,
            Group {
                members: join.members,
                rank: join.rank,
                id,
                next: 0,
                is_joined: false,
                broken: None,
                watch: None,
                notified: HashSet::new(),
            },
        );
        if let Err(error) = self.watch(owner, address) {
            self.groups.remove(&address);
            return Err(error);
        }
        self.instances.insert(join.identity, instance + 1);
        let steps = match join.is_established {
            true => Program::default(),
            false => program(Kind::Barrier, &place),
        };
        let then = Then::Joined {
            group: join.group,
            context: join.context.expose_provenance(),
        };
        let memory = Memories::new(0, AppIov::EMPTY, AppIov::EMPTY, 0)?;
        self.start(owner, address, steps, memory, (None, None), then)
    }

    /// Leaves a group; its operations in progress end without a report, if all their messages have
    /// ended.
    ///
    /// # Errors
    /// `-FI_EBUSY` while operations of it are in progress.
    pub fn leave(&mut self, owner: &TransferOwner, address: fi_addr_t) -> Result {
        let mut operations = self.operations.values();
        if operations.any(|operation| operation.group == address && operation.failed.is_none()) {
            return Err(Errno::EBUSY);
        }
        if let Some(group) = self.groups.remove(&address)
            && let Some(watch) = group.watch
        {
            let _ = owner.cancel(watch as usize);
        }
        Ok(())
    }

    /// Posts a receive for the notification of a failure.
    fn watch(&mut self, owner: &TransferOwner, address: fi_addr_t) -> Result {
        let name = self.name();
        let group = self.groups.get_mut(&address).ok_or(Errno::EINVAL)?;
        owner.receive(&Receive {
            select: Select::Tagged {
                tag: group.id.failure(),
                ignore: 0,
            },
            buffers: AppIov::EMPTY,
            desc: Descs::NONE,
            peer: FI_ADDR_UNSPEC,
            flags: 0,
            context: context(name),
        })?;
        group.watch = Some(name);
        self.messages.insert(name, Owner::Watch(address));
        Ok(())
    }

    /// Starts an operation.
    ///
    /// # Errors
    /// `-FI_EINVAL` if the group is not joined; the error that has broken it.
    pub fn collective(&mut self, owner: &TransferOwner, call: &Collective) -> Result {
        let standing = self.standing(call.group, None)?;
        let place = MemberView {
            rank: standing.rank,
            members: standing.members,
            count: call.count,
            size: call.datatype.map_or(0, |datatype| datatype.size()),
        };
        let steps = program(call.kind, &place);
        let memory = Memories::new(place.size, call.input, call.output, steps.scratch)?;
        let then = Then::Complete {
            context: call.context.expose_provenance(),
            is_reported: call.flags & FI_COMPLETION != 0,
        };
        let kinds = (call.datatype, call.op);
        self.start(owner, call.group, steps, memory, kinds, then)
    }

    fn start(
        &mut self,
        owner: &TransferOwner,
        address: fi_addr_t,
        steps: Program,
        memory: Memories,
        kinds: (
            Option<prov_base::atomic_ops::Datatype>,
            Option<prov_base::atomic_ops::Op>,
        ),
        then: Then,
    ) -> Result {
        let group = self.groups.get_mut(&address).ok_or(Errno::EINVAL)?;
        if let Some(error) = group.broken {
            self.notify(address, receivers(&steps.steps));
            self.send_news(owner);
            return Err(error);
        }
        let number = group.next;
        group.next = number.wrapping_add(1);
        let name = self.name();
        let operation = Operation::new(address, number, steps, memory, kinds, then);
        self.operations.insert(name, operation);
        self.proceed(owner, name);
        Ok(())
    }

    /// Executes the steps of an operation up to the one that has to wait.
    fn proceed(&mut self, owner: &TransferOwner, name: u64) {
        loop {
            let Some(operation) = self.operations.get_mut(&name) else {
                return;
            };
            let wants = operation.next();
            let outcome = match wants {
                Wants::Wait => return self.tell_of_failure(owner, name),
                Wants::Nothing => {
                    self.tell_of_failure(owner, name);
                    return self.end(name);
                }
                Wants::Send(..) | Wants::Receive(..) => self.post(owner, name, wants),
            };
            match outcome {
                Ok(()) => {}
                Err(Errno::EAGAIN) => {
                    if !self.stalled.contains(&name) {
                        self.stalled.push(name);
                    }
                    return;
                }
                Err(error) => {
                    if let Some(operation) = self.operations.get_mut(&name) {
                        operation.fail(error);
                    }
                }
            }
        }
    }

    /// Posts a message of an operation.
    fn post(&mut self, owner: &TransferOwner, name: u64, wants: Wants) -> Result {
        let message = self.name();
        let operation = self.operations.get_mut(&name).ok_or(Errno::EINVAL)?;
        let group = self.groups.get(&operation.group).ok_or(Errno::EINVAL)?;
        let tag = group.id.message(operation.number);
        let member = |rank: usize| group.members.get(rank).copied().ok_or(Errno::EINVAL);
        let receives = match wants {
            Wants::Send(to, pieces) => {
                let buffers = operation.memory.pieces(&pieces);
                owner.transmit(&Transmit {
                    tag: Tag::Value(tag),
                    buffers,
                    desc: Descs::NONE,
                    peer: member(to)?,
                    data: 0,
                    flags: match buffers.len() <= self.inject {
                        true => FI_INJECT,
                        false => 0,
                    },
                    context: context(message),
                })?;
                None
            }
            Wants::Receive(from, pieces) => {
                let buffers = operation.memory.pieces(&pieces);
                owner.receive(&Receive {
                    select: Select::Tagged { tag, ignore: 0 },
                    buffers,
                    desc: Descs::NONE,
                    peer: member(from)?,
                    flags: 0,
                    context: context(message),
                })?;
                Some(buffers.len())
            }
            Wants::Wait | Wants::Nothing => return Ok(()),
        };
        operation.posted();
        self.messages
            .insert(message, Owner::Operation { name, receives });
        Ok(())
    }

    /// Handles the end of a message.
    pub fn message_ended(
        &mut self,
        owner: &TransferOwner,
        context: *mut c_void,
        outcome: Result<usize>,
    ) {
        match self.messages.remove(&(context.addr() as u64)) {
            Some(Owner::Operation { name, receives }) => {
                // A member that sends fewer bytes than expected executes a different operation.
                let outcome = outcome.and_then(|len| match receives {
                    Some(expected) if len != expected => Err(Errno::EMSGSIZE),
                    _ => Ok(()),
                });
                if let Some(operation) = self.operations.get_mut(&name) {
                    operation.ended(outcome);
                }
                self.proceed(owner, name);
            }
            Some(Owner::Watch(address)) => {
                if let Some(group) = self.groups.get_mut(&address) {
                    group.watch = None;
                    // A receive from any member ends with an error only when it is cancelled by
                    // itself.
                    if outcome.is_ok() {
                        // The notifications of others by its sender may be lost, and some wait for
                        // this member in operations that it will not start.
                        let members = group.members.len();
                        self.notify(address, 0..members);
                        self.break_group(owner, address, Errno::ECONNABORTED);
                    }
                }
            }
            // One that is cancelled ends with its endpoint.
            Some(Owner::Sink(id)) if outcome != Err(Errno::ECANCELED) => {
                self.sinks.push(id);
                self.post_sinks(owner);
            }
            Some(Owner::News | Owner::Sink(_)) | None => {}
        }
    }

    /// Posts the messages that could not be posted before.
    pub fn progress(&mut self, owner: &TransferOwner) {
        for name in std::mem::take(&mut self.stalled) {
            self.proceed(owner, name);
        }
        self.send_news(owner);
        self.post_sinks(owner);
    }

    /// Breaks the group of an operation that has failed, and notifies all members.
    fn tell_of_failure(&mut self, owner: &TransferOwner, name: u64) {
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
    fn notify(&mut self, address: fi_addr_t, ranks: impl IntoIterator<Item = usize>) {
        let Some(group) = self.groups.get_mut(&address) else {
            return;
        };
        for rank in ranks {
            if rank != group.rank
                && let Some(member) = group.members.get(rank)
                && group.notified.insert(rank)
            {
                self.news.push((*member, group.id));
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
            self.sinks.push(group.id);
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
        self.post_sinks(owner);
        for name in broken {
            if self
                .operations
                .get(&name)
                .is_some_and(|operation| operation.under_way() == 0)
            {
                self.end(name);
            }
        }
    }

    fn send_news(&mut self, owner: &TransferOwner) {
        for (member, id) in std::mem::take(&mut self.news) {
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
                }
                Err(Errno::EAGAIN) => self.news.push((member, id)),
                // A member that cannot be reached detects the failure itself, or has ended.
                Err(_) => {}
            }
        }
    }

    /// Posts receives that drop the messages of broken groups, one for each group. They outlive the
    /// membership, since others may send until they know of the failure.
    fn post_sinks(&mut self, owner: &TransferOwner) {
        for id in std::mem::take(&mut self.sinks) {
            let message = self.name();
            let (tag, ignore) = id.any_message();
            let posted = owner.receive(&Receive {
                select: Select::Tagged { tag, ignore },
                buffers: AppIov::EMPTY,
                desc: Descs::NONE,
                peer: FI_ADDR_UNSPEC,
                flags: 0,
                context: context(message),
            });
            match posted {
                Ok(()) => {
                    self.messages.insert(message, Owner::Sink(id));
                }
                Err(Errno::EAGAIN) => self.sinks.push(id),
                // The endpoint receives nothing more.
                Err(_) => {}
            }
        }
    }

    /// Ends an operation.
    fn end(&mut self, name: u64) {
        let Some(operation) = self.operations.remove(&name) else {
            return;
        };
        let outcome = match operation.failed {
            Some(error) => Err(error),
            None => {
                operation.memory.finish();
                Ok(())
            }
        };
        let report = match operation.then {
            Then::Complete {
                context,
                is_reported,
            } => {
                let context = with_exposed_provenance_mut(context);
                let completion = Completion::new(context, FI_COLLECTIVE);
                match outcome {
                    Err(error) => Report::Failed(ErrorCompletion::new(completion, error)),
                    Ok(()) => Report::Done(completion, is_reported),
                }
            }
            Then::Joined { group, context } => {
                if let Some(joined) = self.groups.get_mut(&operation.group) {
                    joined.is_joined = outcome.is_ok();
                }
                Report::Joined(group, context, outcome)
            }
        };
        self.reports.push(report);
    }
}

/// Returns the context with which a message is posted: its name, which is not an address.
fn context(name: u64) -> *mut c_void {
    without_provenance_mut(name as usize)
}
