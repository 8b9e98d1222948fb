//! What is being sent to peers: operations of this side, responses and refusals.

use super::host::{Failure, Host};
use super::wire::Operation;

/// What a job is about.
pub enum What<H: Host> {
    /// An operation of this side.
    Own(H::Op),
    /// What a peer reads, or the old values of its atomic operation.
    Response(H::Response),
    /// The peer's operation with this sequence number was refused.
    Refusal { of: u64, errno: u32 },
}

/// One of them.
pub struct Job<H: Host> {
    /// The peer's index.
    pub peer: u32,
    pub what: What<H>,
    /// Type of its first packet.
    pub kind: u8,
    /// Headers of its first packet. The extent is there once it has begun, if it needs one.
    pub operation: Operation,
    /// The initiator's number of it.
    pub id: u32,
    /// Bytes of payload.
    pub len: usize,
    /// Bytes of payload in the first packet.
    pub first: usize,
    /// Sequence number of the first packet.
    pub start: u64,
    /// Number of its packets; 0 until it is divided.
    pub parts: u32,
    /// How many of them have been sent.
    pub sent: u32,
    /// Whether all have been acknowledged.
    pub is_acked: bool,
    /// Packets of its result, and how many of them are here or were refused.
    pub result_parts: u32,
    pub result_got: u32,
    /// Of a response: number of packets that its last one refuses, itself among them; 0 if it refuses none.
    pub refused: u32,
    /// Why it has failed; reported when it is over. Of a response: why the peer did not get all of it.
    pub failure: Option<Failure>,
}

impl<H: Host> Job<H> {
    /// A job that has not begun.
    pub fn new(peer: u32, what: What<H>, kind: u8, operation: Operation, len: usize) -> Self {
        Job {
            peer,
            what,
            kind,
            operation,
            id: 0,
            len,
            first: 0,
            start: 0,
            parts: 0,
            sent: 0,
            is_acked: false,
            result_parts: 0,
            result_got: 0,
            refused: 0,
            failure: None,
        }
    }

    /// Whether anything of it has been sent.
    pub fn has_begun(&self) -> bool {
        self.sent != 0
    }

    /// Nothing of it has been sent to the peer.
    pub fn take_back(&mut self) {
        (self.sent, self.parts) = (0, 0);
        (self.result_parts, self.result_got) = (0, 0);
    }

    /// Whether nothing more is to be expected from the peer.
    pub fn is_over(&self) -> bool {
        self.is_acked && self.result_got == self.result_parts
    }
}

/// Most operations of this side at one time: half of the numbers that the C library can repeat (16
/// bits).
pub const MAX_OPERATIONS: usize = 1 << 15;
/// Most responses and refusals at one time: the other half.
pub const MAX_FOREIGN: usize = (1 << 15) - 1;

/// All jobs of an endpoint. Each has a number, which is reused.
pub struct Jobs<H: Host> {
    jobs: Vec<Option<Job<H>>>,
    free: Vec<u32>,
    own: usize,
    foreign: usize,
}

impl<H: Host> Default for Jobs<H> {
    fn default() -> Self {
        Jobs {
            jobs: Vec::new(),
            free: Vec::new(),
            own: 0,
            foreign: 0,
        }
    }
}

impl<H: Host> Jobs<H> {
    /// Number of jobs.
    pub fn len(&self) -> usize {
        self.own + self.foreign
    }

    /// Whether one more response or refusal is possible.
    pub fn has_room_for_foreign(&self) -> bool {
        self.foreign < MAX_FOREIGN
    }

    /// Adds a job; `None` if there are too many. The number is the id of an operation of this side.
    pub fn add(&mut self, mut job: Job<H>) -> Option<u32> {
        let (count, most) = match job.what {
            What::Own(_) => (&mut self.own, MAX_OPERATIONS),
            What::Response(_) | What::Refusal { .. } => (&mut self.foreign, MAX_FOREIGN),
        };
        if *count >= most {
            return None;
        }
        *count += 1;
        let number = match self.free.last() {
            Some(&number) => number,
            None => u32::try_from(self.jobs.len()).ok()?,
        };
        if let What::Own(_) = job.what {
            job.id = number;
        }
        match self.jobs.get_mut(number as usize) {
            Some(place) => {
                self.free.pop();
                *place = Some(job);
            }
            None => self.jobs.push(Some(job)),
        }
        Some(number)
    }

    /// Returns the job with this number.
    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&Job<H>> {
        self.jobs.get(number as usize)?.as_ref()
    }

    /// Returns the job with this number.
    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Job<H>> {
        self.jobs.get_mut(number as usize)?.as_mut()
    }

    /// Removes a job.
    pub fn remove(&mut self, number: u32) -> Option<Job<H>> {
        let job = self.jobs.get_mut(number as usize)?.take()?;
        match job.what {
            What::Own(_) => self.own -= 1,
            What::Response(_) | What::Refusal { .. } => self.foreign -= 1,
        }
        self.free.push(number);
        Some(job)
    }

    /// The numbers of a peer's jobs.
    pub fn of_peer(&self, peer: u32) -> Vec<u32> {
        let numbered = (0..).zip(&self.jobs);
        let of_peer = numbered.filter(|(_, job)| job.as_ref().is_some_and(|job| job.peer == peer));
        of_peer.map(|(number, _)| number).collect()
    }
}
