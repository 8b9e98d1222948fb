//! The properties of reading a peer's table of regions and lists of segments of its memory, for
//! arbitrary contents. Shared by the fuzz target and the crate's tests.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;

use fabric_abi::{FI_REMOTE_CQ_DATA, FI_REMOTE_READ};
use prov_base::buffer::AppIov;
use prov_base::process_memory::{OtherIov, Seal, WRITTEN};
use prov_local::channel::Channel;
use prov_local::onesided::table::RegionTable;
use prov_local::onesided::window::Window;
use prov_local::process::OtherProcess;
use prov_message::peers::Bytes;
use prov_util::desc::Descs;
use prov_util::mr::publish::{Published, Publisher};
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

/// Number of bytes of the memory in which regions may lie.
const PLACE: usize = 64;
/// Largest number of bytes of an access, and number of bytes on either side of its destination.
const LEN: usize = 32;

/// Reads numbers from the front of bytes, small and large ones equally often.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        match self.0 {
            [0..128, small, rest @ ..] => {
                self.0 = rest;
                u64::from(*small)
            }
            [_, rest @ ..] => {
                let (bytes, rest) = rest.split_at(rest.len().min(8));
                let mut all = [0; 8];
                all[..bytes.len()].copy_from_slice(bytes);
                self.0 = rest;
                u64::from_le_bytes(all)
            }
            [] => 0,
        }
    }

    fn are_left(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Fills a table with regions, and reads memory through it, as the bytes determine.
pub fn check(bytes: &[u8]) {
    check_list(bytes);
    let mut numbers = Numbers(bytes);
    let place: Vec<u8> = (1..=PLACE as u8).collect();
    let base = place.as_ptr().expose_provenance() as u64;
    let table = RegionTable::new("test").unwrap();
    let (_here, fd) = Channel::create().unwrap();
    let there = Channel::attach(fd.as_fd()).unwrap();
    let seal = Seal::new().unwrap();
    let (owner, _) = OtherProcess::find(std::process::id(), seal.token()).unwrap();
    let mut window = Window::attach(table.descriptor(), there.flights(), owner).unwrap();
    let (socket, _far) = UnixStream::pair().unwrap();
    let mut published = Vec::new();
    for _ in 0..numbers.next() % 8 {
        let region = Published {
            key: numbers.next() % 4,
            base: numbers.next(),
            len: numbers.next(),
            // Mostly in the memory, or anywhere.
            addr: match numbers.next() {
                at @ 0..256 => base + at % PLACE as u64,
                any => any,
            },
            access: numbers.next(),
            counted: numbers.next(),
        };
        table.publish(Some(&region));
        published.push(region);
    }
    while numbers.are_left() {
        let mut remote = RemoteIov::default();
        let piece = RemotePiece {
            key: numbers.next() % 4,
            addr: numbers.next(),
            len: numbers.next() % (LEN as u64 + 1),
        };
        remote.push(piece);
        read(
            &mut window,
            &socket,
            piece,
            remote,
            numbers.next(),
            &place,
            &published,
        );
    }
}

/// Reads a segment of the owner's memory, and checks the result.
fn read(
    window: &mut Window,
    socket: &UnixStream,
    piece: RemotePiece,
    remote: RemoteIov,
    flags: u64,
    place: &[u8],
    published: &[Published],
) {
    let mut to = [0xee; 3 * LEN];
    let len = piece.len as usize;
    // SAFETY: `to` lives until the access is carried out, which is before the call returns.
    let local = unsafe { AppIov::from_raw(to[LEN..].as_mut_ptr(), len) };
    let access = RemoteAccess {
        access: Access::Read,
        local,
        desc: Descs::NONE,
        remote,
        peer: 0,
        data: 0,
        flags: flags & !FI_REMOTE_CQ_DATA,
        context: null_mut(),
    };
    let accessed = window.access(&access, &Bytes::Own(&[]), socket.as_fd(), || true);
    assert!(
        to[..LEN]
            .iter()
            .chain(&to[LEN + len..])
            .all(|byte| *byte == 0xee)
    );
    // The addresses where the regions with the key permit the access.
    let places = published.iter().filter(|region| region.key == piece.key);
    let places = places.filter_map(|region| {
        let offset = piece.addr.checked_sub(region.base)?;
        let is_within = offset.checked_add(piece.len)? <= region.len;
        let is_permitted = region.access & FI_REMOTE_READ != 0;
        let addr = region.addr.checked_add(offset)?;
        (is_within && is_permitted).then_some(addr)
    });
    let mut places = places.peekable();
    let accessed = accessed.ok().flatten();
    match accessed.map(|accessed| accessed.outcome) {
        Some(Ok(())) if len != 0 => {
            let base = place.as_ptr().expose_provenance() as u64;
            assert!(places.peek().is_some(), "nothing lets it in");
            let is_from = |at: u64| match at.checked_sub(base) {
                Some(at) if at as usize + len <= PLACE => {
                    place[at as usize..][..len] == to[LEN..][..len]
                }
                // It is not in the memory that is known here.
                _ => true,
            };
            assert!(places.any(is_from));
        }
        // The key of an empty access is not checked, and pages may not exist.
        Some(Ok(())) | None => {}
        Some(Err(_)) => {
            let keys = published.iter().filter(|region| region.key == piece.key);
            assert!(keys.count() > 1 || places.peek().is_none(), "it is refused");
        }
    }
}

/// A list of segments is decoded as it was encoded, or not at all.
fn check_list(bytes: &[u8]) {
    if let Some(list) = OtherIov::read(bytes) {
        let mut again = [0; WRITTEN];
        let written = list.write(&mut again);
        assert!(list.is_empty() || OtherIov::read(written) == Some(list));
    }
}
