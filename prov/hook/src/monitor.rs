//! `ofi_hook_monitor`: counts as the profile hook does, for a sampler that reads the numbers while the
//! application runs (fi_mon_sampler(1)).

#![forbid(unsafe_code)]

pub mod board;
mod place;

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;

use self::board::Board;
use self::place::Place;
use crate::below::Below;
use crate::tally::Tally;
use crate::wrap::{Call, Entry, Hook};

pub use self::place::{PARAMETERS, Settings};

/// Its C structure.
pub static ENTRY: Entry = Entry::of::<Monitor>();

/// The hook.
pub struct Monitor {
    below: Below,
    tally: Box<Tally>,
    /// Calls since the sampler's request was last looked for.
    ticks: AtomicU64,
    settings: Settings,
    board: Mutex<Board>,
    /// The file is this process's: children of fork(2) leave it alone.
    process: Process,
}

impl Hook for Monitor {
    const NAME: &'static CStr = c"ofi_hook_monitor";

    fn install(below: Below) -> Result<Self> {
        let settings = Settings::get();
        let place = Place::of(&settings, &below.name()).map_err(|error| {
            below.warn(FI_LOG_FABRIC, &format_args!("monitor hook: {error}"));
            Errno::EACCES
        })?;
        let path = place.to_string();
        let board = Board::create(place, settings.file_mode).map_err(|error| {
            below.warn(
                FI_LOG_FABRIC,
                &format_args!("monitor hook: cannot create {path}: {error}"),
            );
            Errno::EACCES
        })?;
        below.trace(
            FI_LOG_FABRIC,
            &format_args!("monitor hook: counters are in {path}"),
        );
        Ok(Monitor {
            below,
            tally: Box::default(),
            ticks: AtomicU64::new(0),
            settings,
            board: Mutex::new(board),
            process: Process::current(),
        })
    }

    fn after(&self, call: &Call<'_>, _before: u64, result: i64) {
        let counted = self.tally.count(call, result);
        if counted == 0 {
            return;
        }
        let ticks = self.ticks.fetch_add(counted, Ordering::Relaxed) + counted;
        if ticks < self.settings.tick_max {
            return;
        }
        self.ticks.store(0, Ordering::Relaxed);
        if !self.process.is_current() {
            return;
        }
        // If another thread has it, that one is answering.
        if let Ok(mut board) = self.board.try_lock()
            && let Err(error) = board.answer(&self.tally)
        {
            self.below.trace(
                FI_LOG_FABRIC,
                &format_args!("monitor hook: cannot write the counters: {error}"),
            );
        }
    }

    fn finish(&self) {
        if !self.process.is_current() {
            return;
        }
        let Ok(mut board) = self.board.lock() else {
            return;
        };
        let done = match self.settings.linger {
            true => board.leave(&self.tally),
            false => board.remove(),
        };
        if let Err(error) = done {
            self.below.warn(
                FI_LOG_FABRIC,
                &format_args!("monitor hook: cannot finish the file of counters: {error}"),
            );
        }
    }
}
