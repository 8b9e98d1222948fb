//! Random numbers for names that strangers should not guess or meet again.

/// Bytes that nobody can guess; `None` where the kernel has none to give.
pub fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let taken = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    (taken == Ok(N)).then_some(bytes)
}

/// 64 bits from the kernel, or from the clock where that has none to give.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.as_nanos() as u64),
    }
}
