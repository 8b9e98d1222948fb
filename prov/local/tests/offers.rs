//! Registered memory that other processes copy.

use fabric_abi::FI_REMOTE_READ;
use libc::iovec;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::process_memory::{OtherIov, Seal};
use prov_local::process::OtherProcess;
use prov_util::mr::{Config, Job, Memory, MrTable, Request};

#[test]
fn data_copied_from_a_closed_region_is_not_taken_for_its_bytes() {
    let (mut a, mut b) = ([1u8; 5], [0u8; 2]);
    let table = MrTable::new(&Config::default());
    let process = Seal::new().unwrap();
    let (other, _) = OtherProcess::find(std::process::id(), process.token()).unwrap();
    let piece = iovec {
        iov_base: a.as_mut_ptr().cast(),
        iov_len: a.len(),
    };
    // SAFETY: `a` outlives the region.
    let memory = unsafe { Memory::new(&[piece]) }.unwrap();
    let region = table
        .register(Request::new(memory, FI_REMOTE_READ, 1))
        .unwrap();
    let grant = table
        .accessor()
        .resolve(1, 1, 2, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    let mut list = OtherIov::default();
    let mut accessor = table.accessor();
    assert!(accessor.hold(&grant).unwrap().offer(&mut list));
    // SAFETY: `b` outlives the copies.
    let to = unsafe { AppIov::from_raw(b.as_mut_ptr(), b.len()) };
    assert_eq!(other.copy(&list, &to), Ok(()));
    table.close(&region).unwrap();
    assert_eq!(other.copy(&list, &to), Err(Errno::ESHUTDOWN));
    assert!(accessor.hold(&grant).is_none());
    assert_eq!(b, [1, 1]);
}
