//! The groups of an endpoint and their operations in progress.
//!
//! Members start their operations on a group in the same order, so that a number identifies the
//! operation of a message. Each message is received from the member that sends it. `failure` has
//! what becomes of a group whose members cannot continue.
//!
//! A group is joined by two barriers. The first one has the id that follows from the members'
//! addresses, and its messages carry what the members agree on ([`Agreement`]). The second one has
//! the id that follows from that; when it ends, no member uses the first id any more.

mod failure;

use prov_base::bounded;
use prov_base::bounds::{OBJECTS, OPERATIONS};
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

use crate::agreement::Agreement;
use crate::memory::Memories;
use crate::operation::{Joined, Operation, Then, Wants};
use crate::program::{Program, program, receivers};
use crate::tags::GroupId;

use self::failure::{Failures, Watch};

/// A group that the endpoint has joined, or is joining.
struct Group {
    members: Vec<fi_addr_t>,
    rank: usize,
    /// The id that follows from the members' addresses, under which the group is joined.
    public: GroupId,
    /// The id of the operations: `public` until the members have agreed on another one.
    id: GroupId,
    agreement: Agreement,
    /// The number of the next operation.
    next: u16,
    is_joined: bool,
    /// Why no further operation can succeed.
    broken: Option<Errno>,
    /// The receives that wait for notifications of failures.
    watches: Vec<u64>,
    /// The ranks that have been notified of the failure, or will be.
    notified: HashSet<usize>,
}

impl Group {
    /// The member's steps of a barrier.
    fn barrier(&self) -> Program {
        let place = MemberView {
            rank: self.rank,
            members: self.members.len(),
            count: 0,
            size: 0,
        };
        program(Kind::Barrier, &place)
    }

    /// The ids under which other members may wait or send: two while the second barrier is under
    /// way, since members are at most one barrier apart.
    fn ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        let both = !self.is_joined && self.id != self.public;
        std::iter::once(self.id).chain(both.then_some(self.public))
    }

    /// Whether members may send notifications of failures under this id.
    fn awaits(&self, id: GroupId) -> bool {
        self.ids().any(|one| one == id)
    }
}

/// The owner of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// An operation; for a receive, which can be cancelled, with the number of bytes expected.
    Operation { name: u64, receives: Option<usize> },
    /// The receive for notifications of failures of a group.
    Watch(Watch),
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
    failures: Failures,
    next_name: u64,
    /// Operations that wait until messages can be posted, in order.
    stalled: Vec<u64>,
    /// Largest number of bytes of a message whose send is not waited for.
    inject: usize,
    /// Whether messages can carry 64 bits of immediate data.
    has_data: bool,
    /// Results that have yet to be reported.
    reports: Vec<Report>,
}

/// The first address of a group: above the indexes of address vectors, and of their sets.
const FIRST_GROUP: u64 = 3 << 61;

impl Engine {
    /// Creates an engine; the memory of messages of up to `inject` bytes belongs to the sender
    /// again when they are posted. `has_data` tells whether messages can carry 64 bits of immediate
    /// data.
    pub fn new(inject: usize, has_data: bool) -> Self {
        Engine {
            groups: HashMap::new(),
            operations: HashMap::new(),
            messages: HashMap::new(),
            instances: HashMap::new(),
            failures: Failures::default(),
            next_name: FIRST_GROUP,
            stalled: Vec::new(),
            inject,
            has_data,
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
        !self.may_sleep() || self.failures.lacks_receives()
    }

    /// Whether what waits can be posted only after the endpoint has had an event: there is room for
    /// another receive when one has ended.
    pub fn may_sleep(&self) -> bool {
        self.stalled.is_empty() && !self.failures.has_news()
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

    /// Begins to join a group, with the first barrier of its members.
    ///
    /// # Errors
    /// Those of the owner for the receive of failure notifications.
    pub fn join(&mut self, owner: &TransferOwner, address: fi_addr_t, join: Join) -> Result {
        // All members join the groups of these members in the same order.
        let instance = self.instances.get(&join.identity).copied().unwrap_or(0);
        let id = GroupId::of(join.identity, instance);
        let group = Group {
            agreement: Agreement::new(join.rank, self.has_data),
            members: join.members,
            rank: join.rank,
            public: id,
            id,
            next: 0,
            is_joined: false,
            broken: None,
            watches: Vec::new(),
            notified: HashSet::new(),
        };
        let barrier = match join.is_established {
            true => Program::default(),
            false => group.barrier(),
        };
        self.groups.insert(address, group);
        bounded!(self.groups, OBJECTS);
        if let Err(error) = self.watch(owner, Watch { address, id }) {
            self.groups.remove(&address);
            return Err(error);
        }
        self.instances.insert(join.identity, instance + 1);
        bounded!(self.instances, OBJECTS);
        let joined = (join.group, join.context.expose_provenance());
        let then = match join.is_established {
            // The members do not wait for one another, and agree on nothing but their key.
            true => Then::Joined(joined),
            false => Then::Agreed(joined),
        };
        self.start_barrier(owner, address, barrier, then)
    }

    fn start_barrier(
        &mut self,
        owner: &TransferOwner,
        address: fi_addr_t,
        barrier: Program,
        then: Then,
    ) -> Result {
        let memory = Memories::new(0, AppIov::EMPTY, AppIov::EMPTY, 0)?;
        self.start(owner, address, barrier, memory, (None, None), then)
    }

    /// Goes on with a group whose first barrier has ended: begins the second one, or has joined the
    /// group if its members could not agree.
    fn agreed(&mut self, owner: &TransferOwner, address: fi_addr_t, joined: Joined) {
        let Some(group) = self.groups.get_mut(&address) else {
            return;
        };
        let Some(number) = group.agreement.number() else {
            group.is_joined = true;
            return self
                .reports
                .push(Report::Joined(joined.0, joined.1, Ok(())));
        };
        group.id = group.public.agreed(number);
        let (id, barrier) = (group.id, group.barrier());
        self.keep_watching(owner, Watch { address, id });
        if let Err(error) =
            self.start_barrier(owner, address, barrier, Then::Joined(joined.clone()))
        {
            self.reports
                .push(Report::Joined(joined.0, joined.1, Err(error)));
        }
    }

    /// Ends the joining of a group.
    fn joined(
        &mut self,
        owner: &TransferOwner,
        address: fi_addr_t,
        joined: Joined,
        outcome: Result,
    ) {
        if let Some(group) = self.groups.get_mut(&address) {
            group.is_joined = outcome.is_ok();
            self.end_watches(owner, address);
        }
        self.reports
            .push(Report::Joined(joined.0, joined.1, outcome));
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
        if let Some(group) = self.groups.remove(&address) {
            for watch in group.watches {
                let _ = owner.cancel(watch as usize);
            }
        }
        Ok(())
    }

    /// Starts an operation.
    ///
    /// # Errors
    /// `-FI_EINVAL` if the group is not joined; the error that has broken it.
    pub fn collective(&mut self, owner: &TransferOwner, call: &mut Collective) -> Result {
        let standing = self.standing(call.group, None)?;
        let place = MemberView {
            rank: standing.rank,
            members: standing.members,
            count: call.count,
            size: call.datatype.map_or(0, |datatype| datatype.size()),
        };
        let steps = program(call.kind, &place);
        let memory = Memories::new(
            place.size,
            call.input.take(),
            call.output.take(),
            steps.scratch,
        )?;
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
        bounded!(self.operations, OPERATIONS);
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
                    return self.end(owner, name);
                }
                Wants::Send(..) | Wants::Receive(..) => self.post(owner, name, wants),
            };
            match outcome {
                Ok(()) => {}
                Err(Errno::EAGAIN) => {
                    if !self.stalled.contains(&name) {
                        self.stalled.push(name);
                        bounded!(self.stalled, OPERATIONS);
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
    #[allow(unsafe_code)]
    fn post(&mut self, owner: &TransferOwner, name: u64, wants: Wants) -> Result {
        let message = self.name();
        let operation = self.operations.get_mut(&name).ok_or(Errno::EINVAL)?;
        let group = self.groups.get(&operation.group).ok_or(Errno::EINVAL)?;
        let tag = group.id.message(operation.number);
        let member = |rank: usize| group.members.get(rank).copied().ok_or(Errno::EINVAL);
        let data = match operation.then {
            Then::Agreed(_) if self.has_data => Some(group.agreement.to_data()),
            _ => None,
        };
        let receives = match wants {
            Wants::Send(to, pieces) => {
                // SAFETY: the operation is kept until its messages have ended: `end` is called when none
                // is under way, and the engine is dropped after the owner's endpoint was closed.
                let buffers = unsafe { operation.memory.lend(&pieces) };
                let inject = match buffers.len() <= self.inject {
                    true => FI_INJECT,
                    false => 0,
                };
                owner.transmit(&Transmit {
                    tag: Tag::Value(tag),
                    buffers,
                    desc: Descs::NONE,
                    peer: member(to)?,
                    data: data.unwrap_or(0),
                    flags: inject | data.map_or(0, |_| FI_REMOTE_CQ_DATA),
                    context: context(message),
                })?;
                None
            }
            Wants::Receive(from, pieces) => {
                // SAFETY: the operation is kept until its messages have ended: `end` is called when none
                // is under way, and the engine is dropped after the owner's endpoint was closed.
                let buffers = unsafe { operation.memory.lend(&pieces) };
                let room = buffers.len();
                owner.receive(&Receive {
                    select: Select::Tagged { tag, ignore: 0 },
                    buffers,
                    desc: Descs::NONE,
                    peer: member(from)?,
                    flags: 0,
                    context: context(message),
                })?;
                Some(room)
            }
            Wants::Wait | Wants::Nothing => return Ok(()),
        };
        operation.posted();
        self.messages
            .insert(message, Owner::Operation { name, receives });
        Ok(())
    }

    /// Handles the end of a message. A successful one has its length, source and immediate data.
    pub fn message_ended(
        &mut self,
        owner: &TransferOwner,
        context: *mut c_void,
        outcome: std::result::Result<&Completion, Errno>,
    ) {
        match self.messages.remove(&(context.addr() as u64)) {
            Some(Owner::Operation { name, receives }) => {
                if let (Ok(message), Some(_)) = (outcome, receives) {
                    self.learn(name, message);
                }
                // A member that sends fewer bytes than expected executes a different operation.
                let outcome = outcome.and_then(|message| match receives {
                    Some(expected) if message.len != expected => Err(Errno::EMSGSIZE),
                    _ => Ok(()),
                });
                if let Some(operation) = self.operations.get_mut(&name) {
                    operation.ended(outcome);
                }
                self.proceed(owner, name);
            }
            Some(Owner::Watch(watch)) => {
                let source = outcome.map(|message| message.src);
                self.watch_ended(owner, context.addr() as u64, watch, source);
            }
            // One that is cancelled ends with its endpoint.
            Some(Owner::Sink(id)) if outcome.err() != Some(Errno::ECANCELED) => {
                self.sink_ended(owner, id);
            }
            Some(Owner::News | Owner::Sink(_)) | None => {}
        }
    }

    /// Learns what the message of a first barrier says about what members agree on.
    fn learn(&mut self, operation: u64, message: &Completion) {
        let Some(operation) = self.operations.get(&operation) else {
            return;
        };
        if let (Then::Agreed(_), Some(group)) =
            (&operation.then, self.groups.get_mut(&operation.group))
        {
            let has_data = message.flags & FI_REMOTE_CQ_DATA != 0;
            group.agreement.learn(has_data.then_some(message.data));
        }
    }

    /// Posts the messages that could not be posted before.
    pub fn progress(&mut self, owner: &TransferOwner) {
        for name in std::mem::take(&mut self.stalled) {
            self.proceed(owner, name);
        }
        self.send_news(owner);
        self.post_receives(owner);
    }

    /// Ends an operation.
    fn end(&mut self, owner: &TransferOwner, name: u64) {
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
        match operation.then {
            Then::Complete {
                context,
                is_reported,
            } => {
                let context = with_exposed_provenance_mut(context);
                let completion = Completion::new(context, FI_COLLECTIVE);
                self.reports.push(match outcome {
                    Err(error) => Report::Failed(ErrorCompletion::new(completion, error)),
                    Ok(()) => Report::Done(completion, is_reported),
                });
            }
            Then::Agreed(joined) if outcome.is_ok() => {
                self.agreed(owner, operation.group, joined);
            }
            Then::Agreed(joined) | Then::Joined(joined) => {
                self.joined(owner, operation.group, joined, outcome);
            }
        }
    }
}

/// Returns the context with which a message is posted: its name, which is not an address.
fn context(name: u64) -> *mut c_void {
    without_provenance_mut(name as usize)
}
