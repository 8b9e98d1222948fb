//! Applies the steps to the model and to the code under test, and checks the results.

use fabric_abi::{FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_MULTI_RECV, FI_PEEK};
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_message::receipt::Dependent;
use prov_message::{Attributes, Context, Core, Endpoints, Poster};
use prov_util::cq::{Cq, CqConfig};
use prov_util::ffi::{Handle, Use};
use prov_util::matching::ANY_SOURCE;
use prov_util::mr::Job;
use prov_util::request::{Receive as Request, Select};
use slotmap::SlotMap;

use crate::model::{Given, LinkKey, Message, MessageState, Model, Number, Receive, ReceiveId};
use crate::provider::{Ep, Link, Provider, Sent};
use crate::step::{ArrivalMode, Setting, Step, Wanted};

pub struct World {
    pub own: Provider,
    pub shared_cq: Use<Cq>,
    /// Contexts of peeks that have claimed a message.
    claims: Vec<usize>,
    /// Receives that end without a message, with the error.
    pub cancelled: Vec<(ReceiveId, Errno)>,
    /// The result of the last peek.
    pub seen: Option<(usize, Option<Number>)>,
}

/// The endpoints: two with their own receives, the second one for a single link, and two with a
/// shared context, or with their own receives for a time.
pub const EPS: usize = 4;
const OF_ONE_LINK: usize = 1;
/// The shared inbox, and its index among the posters.
pub const SHARED: usize = 2;
pub const SHARED_POSTER: usize = EPS;
/// Limit of posted receives.
const RX_SIZE: usize = 6;
const LINKS: usize = 8;
/// First context of peeks.
const LOOKS: usize = 1 << 20;

/// All inboxes: after the shared one, those that the last two endpoints have for a time.
pub const INBOXES: usize = EPS + 1;

/// The poster to an inbox.
pub fn poster_to(inbox: usize) -> usize {
    match inbox {
        SHARED => SHARED_POSTER,
        after if after > SHARED => after - 1,
        own => own,
    }
}

fn queue() -> Use<Cq> {
    let cq = Cq::new(CqConfig::default());
    Use::of(&Handle::new(cq.unwrap(), std::ptr::null_mut(), Vec::new()))
}

fn lend(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the buffers of receives are not moved or freed as long as the world lives.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn context(number: usize) -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut(number)
}

impl World {
    pub fn new(setting: Setting) -> Self {
        let model = Model::new(setting, INBOXES);
        let mut endpoints = Endpoints::new(model.limits);
        let shared = endpoints.add_inbox(RX_SIZE, true);
        let shared_cq = queue();
        endpoints.inbox_mut(shared).unwrap().reports.rx_cq = Some(shared_cq.clone());
        let mut eps = Vec::new();
        let mut inboxes = Vec::new();
        for ep in 0..EPS {
            let attributes = Attributes {
                tx_size: 8,
                most_receives: RX_SIZE,
                directed: ep == 0,
                job: Job::NONE,
            };
            let key = endpoints.add(attributes, ());
            let cq = queue();
            if ep >= SHARED {
                endpoints.share(key, shared).unwrap();
            }
            let state = endpoints.get_mut(key).unwrap();
            state.reports.rx_cq = Some(cq.clone());
            if ep <= SHARED {
                inboxes.push(state.inbox);
            }
            eps.push(Ep {
                key,
                cq,
                inbox: ep.min(SHARED),
                is_open: true,
                has_ended: false,
            });
        }
        let mut world = World {
            own: Provider {
                endpoints,
                model,
                eps,
                inboxes,
                links: SlotMap::with_key(),
                end_at: None,
                acting: false,
            },
            shared_cq,
            claims: Vec::new(),
            cancelled: Vec::new(),
            seen: None,
        };
        for ep in 0..EPS {
            world.connect(ep);
        }
        world
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Send {
                link,
                way,
                tagged,
                tag,
                len,
                data,
                ack,
            } => {
                let Some(key) = self.link(link) else {
                    return;
                };
                let link = &mut self.own.links[key];
                let number = self.own.model.messages.len();
                // An empty message in a multi-receive buffer has no address that would distinguish
                // it from others there, of which one may be lost.
                let data = data || (way == ArrivalMode::Announced && len == 0);
                self.own.model.messages.push(Message {
                    link: key,
                    ep: link.ep,
                    inbox: self.own.eps[link.ep].inbox,
                    src: link.src,
                    way,
                    tagged,
                    tag: if tagged { tag } else { 0 },
                    len,
                    data: data.then_some(number as u64 + 1),
                    ack,
                    place: MessageState::Sent,
                    acknowledged: 0,
                });
                link.sent.push_back(Sent::Message(number));
            }
            Step::Move(link, bytes) => {
                if let Some(key) = self.link(link) {
                    self.own.move_on(key, bytes);
                }
            }
            Step::Rush(link) => {
                if let Some(key) = self.link(link) {
                    self.own.rush(key);
                }
            }
            Step::Post {
                at,
                wanted,
                len,
                multi,
            } => self.post(at, wanted, len, multi),
            Step::Peek(at, wanted) => self.look(at, wanted, 0),
            Step::PeekDiscard(at, wanted) => self.look(at, wanted, FI_DISCARD),
            Step::PeekClaim(at, wanted) => self.look(at, wanted, FI_CLAIM),
            Step::Claim(which, len) => self.claim(which, Some(len)),
            Step::DropClaimed(which) => self.claim(which, None),
            Step::Cancel(receive) => self.cancel(receive),
            Step::CancelAll(at) => self.cancel_all(at),
            Step::CancelFrom(at, src) => self.cancel_from(at, src),
            Step::Relabel(changes) => {
                for (link, src) in changes {
                    self.relabel(link, src);
                }
            }
            Step::EndLink(link) => {
                if let Some(key) = self.link(link) {
                    self.end_link(key);
                }
            }
            Step::EndAtAction(after) => self.own.end_at = Some(after),
            Step::Close(at) => self.close(at),
            Step::Connect(ep) => self.connect(ep),
            Step::Switch(ep) => self.switch(ep),
        }
        self.note_ended_links();
        self.own.follow_up();
    }

    fn link(&self, which: usize) -> Option<LinkKey> {
        let count = self.own.links.len().max(1);
        self.own.links.keys().nth(which % count)
    }

    fn connect(&mut self, ep: usize) {
        let has_one =
            self.own.eps[ep].has_ended || self.own.links.values().any(|link| link.ep == ep);
        let is_second = ep == OF_ONE_LINK && has_one;
        if self.own.links.len() == LINKS || !self.own.eps[ep].is_open || is_second {
            return;
        }
        let count = self.own.links.len() as u64;
        let key = self.own.links.insert(Link {
            ep,
            src: count % 3,
            announces: count.is_multiple_of(2),
            is_held_back: false,
            is_throttled: false,
            incoming: None,
            sent: Default::default(),
        });
        self.own.model.links.insert(key);
    }

    fn poster(&self, at: usize) -> Option<(usize, Poster)> {
        if at == SHARED_POSTER {
            let poster = Poster {
                inbox: self.own.inboxes[SHARED],
                ep: None,
                directed: false,
            };
            return Some((SHARED, poster));
        }
        let ep = &self.own.eps[at];
        let poster = self.own.endpoints.poster(ep.key);
        assert_eq!(poster.is_ok(), ep.is_open);
        Some((ep.inbox, poster.ok()?))
    }

    /// A receive request, and its filter at this inbox.
    fn request(poster: Poster, wanted: Wanted, flags: u64) -> (Request, Wanted) {
        let request = Request {
            select: match wanted.tagged {
                true => Select::Tagged {
                    tag: wanted.tag,
                    ignore: wanted.ignore,
                },
                false => Select::Untagged,
            },
            buffers: AppIov::EMPTY,
            desc: prov_util::desc::Descs::NONE,
            peer: wanted.src.unwrap_or(FI_ADDR_UNSPEC),
            flags: flags | FI_COMPLETION,
            context: context(0),
        };
        let src = wanted.src.filter(|_| poster.directed);
        (request, Wanted { src, ..wanted })
    }

    pub fn post(&mut self, at: usize, wanted: Wanted, len: usize, multi: bool) {
        let Some((inbox, poster)) = self.poster(at) else {
            return;
        };
        let flags = if multi { FI_MULTI_RECV } else { 0 };
        let (mut request, wanted) = Self::request(poster, wanted, flags);
        let has_ended = at < EPS && self.own.eps[at].has_ended;
        let model = &mut self.own.model;
        let posted = model.queue(inbox, wanted.tagged).posted.len();
        let expected = if posted >= RX_SIZE {
            Err(Errno::EAGAIN)
        } else {
            Ok(())
        };
        let id = self.add_receive(wanted, len, multi, &mut request);
        if expected.is_ok() {
            self.own.model.post(inbox, id);
            if has_ended && self.own.model.receives[id].open {
                // It takes no further message, and those that it took are complete.
                self.own.model.cancel(inbox, id);
                self.cancelled.push((id, Errno::ESHUTDOWN));
            }
        } else {
            self.own.model.receives[id].end();
        }
        assert_eq!(self.own.post_receive(poster, &mut request), expected);
    }

    fn add_receive(
        &mut self,
        wanted: Wanted,
        len: usize,
        multi: bool,
        request: &mut Request,
    ) -> ReceiveId {
        let receives = &mut self.own.model.receives;
        let id = receives.len();
        let mut receive = Receive::new(id + 1, wanted, len, multi);
        request.buffers = lend(&mut receive.buffer);
        request.context = context(id + 1);
        receives.push(receive);
        id
    }

    fn look(&mut self, at: usize, wanted: Wanted, flags: u64) {
        let Some((inbox, poster)) = self.poster(at) else {
            return;
        };
        let (mut request, wanted) = Self::request(poster, wanted, FI_PEEK | flags);
        let look = LOOKS + self.claims.len();
        request.context = context(look + 1);
        let found = self.own.model.find(inbox, &wanted);
        self.seen = Some((look, found.map(|(_, number)| number)));
        if let Some((place, number)) = found
            && flags != 0
        {
            let queue = self.own.model.queue(inbox, wanted.tagged);
            queue.unexpected.remove(place);
            if flags == FI_CLAIM {
                queue.claimed.push((look, number));
            } else {
                self.own.model.messages[number].place = MessageState::Dropped;
            }
        }
        self.claims.push(look);
        assert_eq!(self.own.post_receive(poster, &mut request), Ok(()));
        self.drain();
        assert_eq!(self.seen, None, "a look is answered at once");
    }

    /// Receives the claimed message in a buffer of so many bytes, or drops it.
    pub fn claim(&mut self, which: usize, len: Option<usize>) {
        let mut waiting = Vec::new();
        for (inbox, queues) in self.own.model.queues.iter().enumerate() {
            for (tagged, queue) in queues.iter().enumerate() {
                waiting.extend(
                    queue
                        .claimed
                        .iter()
                        .map(|&claim| (inbox, tagged == 1, claim)),
                );
            }
        }
        let count = waiting.len() + 1;
        let Some(&(inbox, tagged, (look, number))) = waiting.get(which % count) else {
            return self.claim_nothing();
        };
        let Some((_, poster)) = self.poster(poster_to(inbox)) else {
            return;
        };
        let wanted = Wanted {
            tagged,
            tag: 0,
            ignore: 0,
            src: None,
        };
        let discard = if len.is_none() { FI_DISCARD } else { 0 };
        let (mut request, _) = Self::request(poster, wanted, FI_CLAIM | discard);
        request.context = context(look + 1);
        let model = &mut self.own.model;
        model
            .queue(inbox, tagged)
            .claimed
            .retain(|&(other, _)| other != look);
        if let Some(len) = len {
            let id = model.receives.len();
            let mut receive = Receive::new(look + 1, wanted, len, false);
            receive.open = false;
            receive.given.push(number);
            request.buffers = lend(&mut receive.buffer);
            model.receives.push(receive);
            model.messages[number].place = MessageState::Given(Given {
                receive: id,
                offset: 0,
                room: len,
            });
        } else {
            model.messages[number].place = MessageState::Dropped;
            self.seen = Some((look, Some(number)));
        }
        assert_eq!(self.own.post_receive(poster, &mut request), Ok(()));
        self.drain();
        assert_eq!(self.seen, None);
    }

    fn claim_nothing(&mut self) {
        let Some((_, poster)) = self.poster(0) else {
            return;
        };
        let wanted = Wanted {
            tagged: true,
            tag: 0,
            ignore: 0,
            src: None,
        };
        let (mut request, _) = Self::request(poster, wanted, FI_CLAIM);
        assert_eq!(
            self.own.post_receive(poster, &mut request),
            Err(Errno::ENOMSG)
        );
    }

    fn inbox_of(&self, id: ReceiveId) -> Option<usize> {
        let queues = self.own.model.queues.iter();
        let mut queues = queues.enumerate();
        let found =
            queues.find(|(_, queues)| queues.iter().any(|queue| queue.posted.contains(&id)));
        found.map(|(inbox, _)| inbox)
    }

    pub fn cancel(&mut self, receive: usize) {
        let id = receive % self.own.model.receives.len().max(1);
        let inbox = self.inbox_of(id);
        let at = poster_to(inbox.unwrap_or(SHARED));
        let Some((_, poster)) = self.poster(at) else {
            return;
        };
        if let Some(inbox) = inbox
            && self.own.model.cancel(inbox, id)
        {
            self.cancelled.push((id, Errno::ECANCELED));
        }
        let outcome = self.own.endpoints.cancel(poster, Context(id + 1));
        let expected = inbox.map(|_| ()).ok_or(Errno::ENOENT);
        assert_eq!(outcome, expected);
    }

    fn cancel_all(&mut self, at: usize) {
        let at = at % EPS;
        if !self.own.eps[at].is_open {
            return;
        }
        let inbox = self.own.eps[at].inbox;
        if inbox != SHARED {
            self.cancel_where(inbox, Errno::ECANCELED, |_| true);
        }
        let key = self.own.eps[at].key;
        self.own.endpoints.cancel_receives(key, Errno::ECANCELED);
    }

    fn cancel_from(&mut self, at: usize, src: u64) {
        let ep = &self.own.eps[at % EPS];
        if !ep.is_open {
            return;
        }
        let (inbox, key) = (ep.inbox, ep.key);
        // The peer may reach another endpoint with the same receives.
        if inbox != SHARED {
            self.cancel_where(inbox, Errno::ECONNREFUSED, |wanted| wanted.src == Some(src));
        }
        self.own
            .endpoints
            .cancel_receives_from(key, src, Dependent::All, Errno::ECONNREFUSED);
    }

    fn cancel_where(&mut self, inbox: usize, error: Errno, which: impl Fn(&Wanted) -> bool) {
        for tagged in [false, true] {
            for id in self.own.model.queue(inbox, tagged).posted.clone() {
                if which(&self.own.model.receives[id].wanted) && self.own.model.cancel(inbox, id) {
                    self.cancelled.push((id, error));
                }
            }
        }
    }

    fn relabel(&mut self, link: usize, src: Option<u64>) {
        let Some(key) = self.link(link) else {
            return;
        };
        let src = src.unwrap_or(ANY_SOURCE);
        self.own.links[key].src = src;
        let ep = self.own.links[key].ep;
        let waiting: Vec<Number> = self.own.model.waiting().collect();
        for number in waiting {
            let message = &mut self.own.model.messages[number];
            if message.link == key {
                message.src = src;
            }
        }
        let Ep { key: ep, inbox, .. } = self.own.eps[ep];
        for tagged in [false, true] {
            self.own.model.settle(inbox, tagged);
        }
        self.own.endpoints.relabel(ep, key, src);
    }

    fn switch(&mut self, at: usize) {
        let Ep { key, inbox, .. } = self.own.eps[at];
        if !self.own.eps[at].is_open {
            return;
        }
        self.drain();
        let to = match inbox {
            SHARED => at + 1,
            _ => SHARED,
        };
        self.own.eps[at].inbox = to;
        if to == SHARED {
            self.cancel_where(inbox, Errno::ECANCELED, |_| true);
        }
        self.own.model.move_messages(at, inbox, to);
        match to {
            SHARED => {
                let shared = self.own.inboxes[SHARED];
                self.own.endpoints.share(key, shared).unwrap();
            }
            _ => self.own.endpoints.unshare(key),
        }
    }

    fn end_link(&mut self, key: LinkKey) {
        self.own.end_link(key);
        self.note_ended_links();
    }

    /// What a provider does for an endpoint whose only link has ended.
    fn note_ended_links(&mut self) {
        self.drain();
        let ep = &mut self.own.eps[OF_ONE_LINK];
        let is_alone = !self.own.links.values().any(|link| link.ep == OF_ONE_LINK);
        if ep.is_open && is_alone && !std::mem::replace(&mut ep.has_ended, true) {
            let key = ep.key;
            self.cancel_where(OF_ONE_LINK, Errno::ESHUTDOWN, |_| true);
            self.own.endpoints.end_receives(key, Errno::ESHUTDOWN);
        }
    }

    pub fn close(&mut self, at: usize) {
        if at == SHARED_POSTER || !self.own.eps[at].is_open {
            return;
        }
        let links = self.own.links.iter();
        let links = links.filter(|(_, link)| link.ep == at).map(|(key, _)| key);
        for key in links.collect::<Vec<_>>() {
            self.end_link(key);
        }
        self.drain();
        self.own.model.drop_messages(|message| message.ep == at);
        let inbox = self.own.eps[at].inbox;
        if inbox != SHARED {
            for queue in &mut self.own.model.queues[inbox] {
                for id in queue.posted.drain(..) {
                    self.own.model.receives[id].end();
                }
            }
        }
        let ep = &mut self.own.eps[at];
        ep.is_open = false;
        self.own.endpoints.close(ep.key).unwrap();
        self.own.follow_up();
    }
}
