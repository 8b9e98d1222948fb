//! `ofi_hook_perf`: counts the calls of each function, and how many instructions, cycles or
//! nanoseconds they take; reported when the fabric is closed.

#![forbid(unsafe_code)]

mod counter;

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;
use prov_base::errno::Result;

use self::counter::Counter;
use crate::below::Below;
use crate::wrap::{Call, Hook, Operation};

/// The hook.
pub struct Perf {
    below: Below,
    counter: Counter,
    sums: Box<[Sum]>,
}

#[derive(Default)]
struct Sum {
    calls: AtomicU64,
    amount: AtomicU64,
}

impl Hook for Perf {
    const NAME: &'static CStr = c"ofi_hook_perf";

    fn install(below: Below) -> Result<Self> {
        Ok(Perf {
            below,
            counter: Counter::choose(below),
            sums: Operation::ALL.iter().map(|_| Sum::default()).collect(),
        })
    }

    fn before(&self, _call: &Call<'_>) -> u64 {
        self.counter.read()
    }

    fn after(&self, call: &Call<'_>, before: u64, _result: i64) {
        let amount = self.counter.read().wrapping_sub(before);
        if let Some(sum) = self.sums.get(call.operation().index()) {
            sum.calls.fetch_add(1, Ordering::Relaxed);
            sum.amount.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn finish(&self) {
        let below = self.below;
        below.trace(
            FI_LOG_CORE,
            &format_args!("\tPERF: {}", self.counter.name()),
        );
        let title = format_args!("\t{:<24}{:<14}{}", "Name", "Avg", "Events").to_string();
        below.trace(FI_LOG_CORE, &title);
        for (operation, sum) in Operation::ALL.iter().zip(&self.sums) {
            let calls = sum.calls.load(Ordering::Relaxed);
            if calls == 0 {
                continue;
            }
            let average = sum.amount.load(Ordering::Relaxed) as f64 / calls as f64;
            let name = row_name(*operation);
            below.trace(
                FI_LOG_CORE,
                &format_args!("\t{name:<24}{average:<14.1}{calls}"),
            );
        }
    }
}

/// Returns the name of an operation in the report: `perf_tsend`.
fn row_name(operation: Operation) -> String {
    let name = operation.name();
    format!("perf_{}", name.strip_prefix("fi_").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_names_of_the_c_library() {
        for (operation, name) in [
            (Operation::MsgSend, "perf_send"),
            (Operation::TaggedInjectdata, "perf_tinjectdata"),
            (Operation::RmaInject, "perf_inject_write"),
            (Operation::CqSreadfrom, "perf_cq_sreadfrom"),
            (Operation::CntrSeterr, "perf_cntr_seterr"),
        ] {
            assert_eq!(row_name(operation), name);
        }
    }
}
