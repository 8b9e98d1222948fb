//! The lengths at which the way of a payload between two processes of a host changes, for all
//! providers, and where its copies are made.
//!
//! A copy that the lane's thread makes under the lane's lock is short, or one-sided: the caller waits
//! for it anyway. So messages in a slot or in the area beside the ring, parts of up to
//! [`PART`](crate::parts::PART), and accesses to registered memory are copied there. A payload that
//! was announced is copied from the sender's memory without the lock, as an
//! [`Errand`](prov_message::Errand): the copy may wait for a page that is not resident, and its length
//! has no bound.

use crate::channel::LONGEST;

/// Length in bytes of the longest message that is sent eagerly on every channel of shm, and of a part of
/// a long write or read through the ring. Longer ones are announced (rendezvous), and the receiver
/// copies the payload: between processors whose caches are apart, two copies of more bytes through the
/// channel take longer than that copy.
pub const EAGER: usize = 16 << 10;

/// Length in bytes of the longest eager message on channels with the memory for it where an announcement
/// costs more: with shm, where neither side can read the other's memory, so that an announced payload
/// would be copied twice as well; with tcp always, since between neighbouring processors a message of 32
/// KiB takes 3.8 us through the ring and 10 us announced (the default of `FI_TCP_LOCAL_MESSAGE_SIZE` is
/// one more).
pub const WIDE: usize = 64 << 10;

/// Length in bytes of the longest copy that goes through the file of a process's memory
/// (proc_pid_mem(5)): the kernel copies each page twice there, and process_vm_writev(2) needs checks
/// before it, which take longer than the second copy of fewer bytes.
pub const BY_FILE: usize = 8 << 10;

/// Length in bytes of the longest copy after which the same thread may make another one before it polls
/// for messages: some microseconds, about what a message waits for a thread that polls other links.
pub const ONE_OF_SEVERAL: usize = 64 << 10;

const _: () = assert!(EAGER <= WIDE && WIDE <= LONGEST);
