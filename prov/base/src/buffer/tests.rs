//! Lists of memory that operations borrow.

use super::*;

fn lend(parts: &mut [&mut [u8]]) -> AppIov {
    let iov: Vec<iovec> = parts
        .iter_mut()
        .map(|part| iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        })
        .collect();
    // SAFETY: the test keeps the parts alive while it uses the result.
    unsafe { AppIov::from_iov(iov.as_ptr(), iov.len()) }.unwrap()
}

#[test]
fn bytes_scatter_over_the_pieces_and_gather_back() {
    let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 0], [0u8; 5]);
    let memory = lend(&mut [&mut a, &mut b, &mut c]);
    assert_eq!(memory.len(), 8);
    assert_eq!(memory.write_at(1, b"123456789"), 7);
    let mut back = [0u8; 16];
    assert_eq!(memory.read_at(2, &mut back), 6);
    assert_eq!(&back[..6], b"234567");
    let mut all = Vec::new();
    memory.append_to(&mut all);
    assert_eq!(all, b"\x001234567");
}

#[test]
fn bytes_are_read_once_wherever_they_begin_and_end() {
    let mut all: [u8; 48] = std::array::from_fn(|at| at as u8 + 1);
    for start in 0..16 {
        for len in 0..=24 {
            let expected: Vec<u8> = (start..start + len + 5).map(|at| at as u8 + 1).collect();
            let (first, second) = all[start..start + len + 5].split_at_mut(len);
            let memory = lend(&mut [first, second]);
            let mut copy = [0; 64];
            assert_eq!(memory.read_once(&mut copy), len + 5);
            assert_eq!(copy[..len + 5], expected);
            assert!(copy[len + 5..].iter().all(|byte| *byte == 0));
            let mut part = vec![0; len];
            assert_eq!(memory.read_once(&mut part), len);
            assert_eq!(part, expected[..len]);
        }
    }
}

#[test]
fn a_slice_beyond_the_end_is_empty() {
    let mut a = [0u8; 3];
    let memory = lend(&mut [&mut a]);
    assert_eq!(memory.slice(3, 1).len(), 0);
    assert_eq!(memory.slice(usize::MAX, usize::MAX).len(), 0);
    assert_eq!(memory.slice(1, usize::MAX).len(), 2);
}

#[test]
fn a_slice_of_nothing_has_its_place() {
    let (mut a, mut b) = ([0u8; 3], [0u8; 2]);
    let memory = lend(&mut [&mut a, &mut b]);
    let [first, second] = [0, 1].map(|piece| memory.pieces()[piece].iov_base.addr());
    let place = |offset| memory.slice(offset, 0).address().addr();
    assert_eq!(place(0), first);
    assert_eq!(place(2), first + 2);
    assert_eq!(place(3), second);
    assert_eq!(place(5), second + 2);
    assert_eq!(place(usize::MAX), second + 2);
    assert!(memory.slice(4, 0).pieces().is_empty());
}

#[test]
fn memory_takes_the_place_of_memory_with_more_or_fewer_pieces() {
    let (mut alone, mut a, mut b) = (*b"abc", *b"abc", *b"de");
    let one = lend(&mut [&mut alone]);
    let two = lend(&mut [&mut a, &mut b]);
    let mut memory = AppIov::EMPTY;
    for other in [&two, &one, &two, &AppIov::EMPTY, &one] {
        memory.assign(&mut other.again());
        let mut bytes = Vec::new();
        memory.append_to(&mut bytes);
        assert_eq!(bytes, &b"abcde"[..other.len()]);
        assert_eq!(memory.len(), other.len());
    }
}

#[test]
fn a_loan_is_split_into_parts_that_follow_one_another() {
    let (mut a, mut b) = (*b"abc", *b"defgh");
    let mut rest = lend(&mut [&mut a, &mut b]);
    let parts = [2, 3, 0, 9].map(|len| {
        let mut bytes = Vec::new();
        rest.split_to(len).append_to(&mut bytes);
        bytes
    });
    assert_eq!(parts.concat(), b"abcdefgh");
    assert_eq!(parts.map(|part| part.len()), [2, 3, 0, 3]);
    assert!(rest.is_empty());
}

#[test]
fn nothing_is_left_of_a_loan_that_was_taken() {
    let (mut a, mut b) = (*b"abc", *b"de");
    for mut memory in [lend(&mut [&mut a]), lend(&mut [&mut a, &mut b])] {
        let len = memory.len();
        assert_eq!(memory.take().len(), len);
        assert!(memory.is_empty() && memory.pieces().is_empty());
    }
}

#[test]
fn too_many_pieces_and_too_many_bytes_are_refused() {
    let piece = iovec {
        iov_base: std::ptr::dangling_mut::<u8>().cast(),
        iov_len: isize::MAX as usize,
    };
    let many = [piece; IOV_LIMIT + 1];
    // SAFETY: nothing is accessed through the refused vectors.
    unsafe {
        assert_eq!(
            AppIov::from_iov(many.as_ptr(), many.len()).err(),
            Some(Errno::EINVAL)
        );
        assert_eq!(
            AppIov::from_iov(many.as_ptr(), 2).err(),
            Some(Errno::EINVAL)
        );
    }
}

#[test]
fn memory_copies_between_differently_cut_vectors() {
    let (mut a, mut b) = (*b"abc", *b"defgh");
    let (mut x, mut y) = ([0u8; 5], [0u8; 2]);
    let copied = lend(&mut [&mut a, &mut b]).copy_to(&lend(&mut [&mut x, &mut y]));
    assert_eq!((copied, &x, &y), (7, b"abcde", b"fg"));
}
