//! `ofi_hook_trace`: writes each call with its arguments and its result to the log.

use std::ffi::CStr;
use std::fmt;

use prov_base::errno::Result;
use prov_base::services;

use crate::below::Below;
use crate::wrap::{Call, Completion, Hook, Operation};

/// The hook.
pub struct Trace {
    below: Below,
}

impl Hook for Trace {
    const NAME: &'static CStr = c"ofi_hook_trace";

    fn install(below: Below) -> Result<Self> {
        Ok(Trace { below })
    }

    fn after(&self, call: &Call<'_>, _before: u64, result: i64) {
        let subsystem = call.operation().table().subsystem();
        if !self.below.logs(fabric_abi::FI_LOG_TRACE, subsystem) {
            return;
        }
        if is_empty_handed(call.operation(), result) {
            return;
        }
        self.below.trace(subsystem, &Line { call, result });
        for completion in call.completions(result).chain(call.failed(result)) {
            self.below.trace(subsystem, &Shown(completion));
        }
    }
}

/// Whether a read found nothing, which is so for almost all reads of a program that polls.
fn is_empty_handed(operation: Operation, result: i64) -> bool {
    use Operation::*;
    let reads = operation.reads_completions() || matches!(operation, EqRead | EqSread | PollPoll);
    reads && (result == i64::from(-libc::EAGAIN) || (result == 0 && operation == PollPoll))
}

struct Line<'a> {
    call: &'a Call<'a>,
    result: i64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.call, self.result)?;
        if let Some(opened) = self.call.opened(self.result) {
            return write!(f, " ({opened:#x})");
        }
        if let Some(event) = self.call.event(self.result) {
            return write!(f, " (event {event})");
        }
        match i32::try_from(self.result) {
            Ok(number @ -4095..=-1) => {
                let text = services::strerror(-number).to_string_lossy();
                write!(f, " ({text})")
            }
            _ => Ok(()),
        }
    }
}

struct Shown(Completion);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completion = &self.0;
        write!(f, "  completion: context={:#x}", completion.context)?;
        if let Some(flags) = completion.flags {
            write!(f, ", flags={flags:#x}, len={}", completion.len)?;
            write!(
                f,
                ", buf={:#x}, data={:#x}",
                completion.buf, completion.data
            )?;
        }
        if let Some(tag) = completion.tag {
            write!(f, ", tag={tag:#x}")?;
        }
        if completion.error != 0 {
            write!(f, ", err={}", completion.error)?;
        }
        Ok(())
    }
}
