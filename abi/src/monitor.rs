//! The file by which the monitor hook (fi_hook(7)) hands its counters to a sampler
//! (fi_mon_sampler(1)), as the C library lays it out: for each row of [`ROWS`] the counts of all
//! [`COLUMNS`] and then the sums, 64 bits each in the machine's order; then one byte of flags.

/// The names of the rows: functions, and then completions by format and direction.
pub const ROWS: [&str; 42] = [
    "recv",
    "recvv",
    "recvmsg",
    "trecv",
    "trecvv",
    "trecvmsg",
    "send",
    "sendv",
    "sendmsg",
    "inject",
    "senddata",
    "injectdata",
    "tsend",
    "tsendv",
    "tsendmsg",
    "tinject",
    "tsenddata",
    "tinjectdata",
    "read",
    "readv",
    "readmsg",
    "write",
    "writev",
    "writemsg",
    "inject_write",
    "writedata",
    "inject_writedata",
    "mr_reg",
    "mr_regv",
    "mr_regattr",
    "cq_read",
    "cq_readfrom",
    "cq_readerr",
    "cq_sread",
    "cq_sreadfrom",
    "cq_ctx",
    "cq_msg_tx",
    "cq_msg_rx",
    "cq_data_tx",
    "cq_data_rx",
    "cq_tagged_tx",
    "cq_tagged_rx",
];

/// The names of the columns, which are ranges of sizes in bytes.
pub const COLUMNS: [&str; 9] = [
    "0_64", "64_512", "512_1K", "1K_4K", "4K_64K", "64K_256K", "256K_1M", "1M_4M", "4M_UP",
];

/// Bytes of the counters, after which the flags are.
pub const COUNTERS: usize = ROWS.len() * COLUMNS.len() * 2 * size_of::<u64>();
/// Bytes of the file: the counters, the flags, and what aligns the whole to 8 bytes.
pub const SIZE: usize = COUNTERS + size_of::<u64>();

/// Flag of the sampler: it wants the counters. The hook takes it away when they are there.
pub const REQUESTED: u8 = 1 << 0;
/// Flag of the hook: these are the last counters, and the sampler removes the file.
pub const FINISHED: u8 = 1 << 1;
