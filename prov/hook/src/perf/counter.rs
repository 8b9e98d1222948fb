//! What the performance hook counts: instructions or cycles of the calling thread, which the kernel
//! counts with the processor's performance monitoring unit, or time.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::Instant;

use fabric_abi::*;
use perf_event::Builder;
use perf_event::events::Hardware;
use prov_base::services;

use crate::below::Below;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// `cpu_instr`, the default.
    Instructions,
    /// `cpu_cycles`.
    Cycles,
    /// `time`, and where there is no counter of the processor.
    Nanoseconds,
}

/// What a thread has open.
enum Opened {
    Not,
    Failed,
    Counting(perf_event::Counter),
}

thread_local! {
    static OPENED: RefCell<[Opened; 2]> = const { RefCell::new([Opened::Not, Opened::Not]) };
}

impl Counter {
    /// Returns the counter that `FI_PERF_CNTR` names, or time where that cannot be read.
    pub fn choose(below: Below) -> Self {
        let text = services::core_text(c"perf_cntr").unwrap_or_default();
        let wanted = Self::parse(&text);
        if wanted == Counter::Nanoseconds {
            return wanted;
        }
        match wanted.open() {
            Ok(_) => wanted,
            Err(error) => {
                below.warn(
                    FI_LOG_CORE,
                    &format_args!(
                        "cannot read {} ({error}), the hook measures time instead",
                        wanted.name()
                    ),
                );
                Counter::Nanoseconds
            }
        }
    }

    /// Returns the counter of a name; that of an unknown name is the default.
    fn parse(text: &str) -> Self {
        match text.trim().to_ascii_lowercase().as_str() {
            "cpu_cycles" => Counter::Cycles,
            "time" => Counter::Nanoseconds,
            _ => Counter::Instructions,
        }
    }

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Counter::Instructions => "CPU instr",
            Counter::Cycles => "CPU cycles",
            Counter::Nanoseconds => "time (ns)",
        }
    }

    /// Returns the counter's value for the calling thread, or zero where it cannot be read.
    pub fn read(self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match self {
            Counter::Nanoseconds => START.elapsed().as_nanos() as u64,
            Counter::Instructions => self.read_of_thread(0),
            Counter::Cycles => self.read_of_thread(1),
        }
    }

    /// Threads whose storage is gone already have no counter.
    fn read_of_thread(self, place: usize) -> u64 {
        let value = OPENED.try_with(|opened| {
            let mut opened = opened.try_borrow_mut().ok()?;
            let opened = opened.get_mut(place)?;
            if matches!(opened, Opened::Not) {
                *opened = match self.open() {
                    Ok(counter) => Opened::Counting(counter),
                    Err(_) => Opened::Failed,
                };
            }
            match opened {
                Opened::Counting(counter) => counter.read().ok(),
                _ => None,
            }
        });
        value.ok().flatten().unwrap_or_default()
    }

    fn open(self) -> std::io::Result<perf_event::Counter> {
        let kind = match self {
            Counter::Cycles => Hardware::CPU_CYCLES,
            _ => Hardware::INSTRUCTIONS,
        };
        let mut counter = Builder::new().kind(kind).build()?;
        counter.enable()?;
        Ok(counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_in_any_case_and_instructions_are_the_default() {
        assert_eq!(Counter::parse("CPU_Cycles"), Counter::Cycles);
        assert_eq!(Counter::parse("time"), Counter::Nanoseconds);
        for text in ["", "cpu_instr", "nonsense"] {
            assert_eq!(Counter::parse(text), Counter::Instructions);
        }
    }

    #[test]
    fn time_does_not_go_back() {
        let first = Counter::Nanoseconds.read();
        assert!(Counter::Nanoseconds.read() >= first);
    }
}
