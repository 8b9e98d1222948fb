//! `ofi_hook_debug`: looks for mistakes in the use of the interface, and writes them to the log as
//! warnings: operations and objects that are left when what they belong to is closed, completions
//! that belong to no operation, calls on closed objects, and more outstanding operations than the
//! endpoint was opened for.

#![forbid(unsafe_code)]

mod ledger;

use std::ffi::CStr;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::*;
use prov_base::errno::Result;
use prov_base::process::Process;

use self::ledger::{Ledger, Matched, Posted};
use crate::below::Below;
use crate::wrap::{Call, Completion, Hook, Kind, Operation};

/// The hook.
pub struct Debug {
    below: Below,
    ledger: Mutex<Ledger>,
    /// What children of fork(2) do with objects that they inherit is not looked at.
    process: Process,
}

impl Hook for Debug {
    const NAME: &'static CStr = c"ofi_hook_debug";

    const KEEPS_CLOSED: bool = true;

    fn install(below: Below) -> Result<Self> {
        Ok(Debug {
            below,
            ledger: Mutex::default(),
            process: Process::current(),
        })
    }

    fn before(&self, call: &Call<'_>) -> u64 {
        // An operation may complete, and another thread read that, before its call returns.
        match posting(call) {
            Some(posted) if self.process.is_noted() => {
                let mut ledger = self.ledger();
                ledger.post(call.context().unwrap_or_default(), posted)
            }
            _ => 0,
        }
    }

    fn after(&self, call: &Call<'_>, before: u64, result: i64) {
        if !self.process.is_noted() {
            return;
        }
        let operation = call.operation();
        if operation.is_transfer() {
            self.posted(call, before, result);
        } else if operation.reads_completions() {
            for completion in call.completions(result) {
                self.completed(call, &completion);
            }
        } else if let Some(completion) = call.failed(result) {
            self.completed(call, &completion);
        } else if let Some(opened) = call.opened(result) {
            self.opened(call, opened);
        } else {
            match operation {
                Operation::FidBind if result == 0 => self.bound(call),
                Operation::FidControl if result == 0 => self.controlled(call),
                Operation::FidClose => self.closed(call, result),
                _ => {}
            }
        }
    }

    fn after_close(&self, call: &Call<'_>) {
        self.warn(
            call,
            &format_args!("{call}: the {} has been closed", call.kind().name()),
        );
    }

    fn finish(&self) {
        if !self.process.is_noted() {
            return;
        }
        let ledger = self.ledger();
        let left = ledger.objects();
        if !left.is_empty() {
            self.below.warn(
                FI_LOG_FABRIC,
                &format_args!("debug hook: the fabric is closed, and not {}", List(&left)),
            );
        }
    }
}

impl Debug {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, call: &Call<'_>, message: &dyn fmt::Display) {
        let subsystem = call.operation().table().subsystem();
        self.below
            .warn(subsystem, &format_args!("debug hook: {message}"));
    }

    fn posted(&self, call: &Call<'_>, ticket: u64, result: i64) {
        if ticket == 0 {
            return;
        }
        let mut ledger = self.ledger();
        if result != 0 {
            ledger.withdraw(call.context().unwrap_or_default(), ticket);
            return;
        }
        let Some(excess) = ledger.excess(call.object(), call.operation().is_receive()) else {
            return;
        };
        drop(ledger);
        let (what, member) = match call.operation().is_receive() {
            true => ("receives", "fi_rx_attr::size"),
            false => ("operations", "fi_tx_attr::size"),
        };
        self.warn(
            call,
            &format_args!(
                "endpoint {:#x} has {} {what} outstanding, and was opened for {} ({member})",
                call.object(),
                excess.outstanding,
                excess.size
            ),
        );
    }

    fn completed(&self, call: &Call<'_>, completion: &Completion) {
        let mut ledger = self.ledger();
        let matched = ledger.complete(completion);
        let is_trusted = ledger.knows_all();
        drop(ledger);
        if matched == Matched::Nothing && is_trusted {
            self.warn(
                call,
                &format_args!(
                    "completion queue {:#x} has a completion with context {:#x}{}, which no \
                     outstanding operation has",
                    call.object(),
                    completion.context,
                    Flags(completion.flags)
                ),
            );
        }
    }

    fn opened(&self, call: &Call<'_>, opened: usize) {
        let kind = match call.operation() {
            Operation::FabricDomain | Operation::FabricDomain2 => Kind::Domain,
            Operation::FabricPassiveEp => Kind::PassiveEndpoint,
            Operation::FabricEqOpen => Kind::EventQueue,
            Operation::FabricWaitOpen => Kind::WaitSet,
            Operation::DomainAvOpen => Kind::AddressVector,
            Operation::DomainCqOpen => Kind::CompletionQueue,
            Operation::DomainCntrOpen => Kind::Counter,
            Operation::DomainPollOpen => Kind::PollSet,
            Operation::DomainStxCtx => Kind::SharedTransmit,
            Operation::DomainXpuCtx => Kind::XpuContext,
            Operation::MrReg | Operation::MrRegv | Operation::MrRegattr => Kind::Memory,
            Operation::AvAvSet => Kind::AddressVectorSet,
            Operation::CmJoin => Kind::Group,
            _ => Kind::Endpoint,
        };
        self.ledger().open(opened, kind, call.queue_sizes());
    }

    fn bound(&self, call: &Call<'_>) {
        let (Some(other), Some(flags)) = (call.argument("bfid"), call.argument("flags")) else {
            return;
        };
        self.ledger().bind(call.object(), other as usize, flags);
    }

    fn controlled(&self, call: &Call<'_>) {
        match call.argument("command").map(|command| command as i32) {
            // Deferred work completes with contexts that only the provider knows.
            Some(FI_QUEUE_WORK) => self.ledger().doubt(),
            // The second name of an endpoint has its operations, too.
            Some(FI_ALIAS) => self.ledger().doubt(),
            _ => {}
        }
    }

    fn closed(&self, call: &Call<'_>, result: i64) {
        let mut ledger = self.ledger();
        if result != 0 {
            if call.kind() == Kind::Fabric {
                let left = ledger.objects();
                drop(ledger);
                self.warn(
                    call,
                    &format_args!("{call} = {result}: open are {}", List(&left)),
                );
            }
            return;
        }
        let left = ledger.close(call.object());
        drop(ledger);
        if left.is_empty() {
            return;
        }
        let sends = left.iter().filter(|posted| !posted.is_receive).count();
        let receives = left.len() - sends;
        let message = format!(
            "endpoint {:#x} is closed with {sends} operations and {receives} receives outstanding",
            call.object()
        );
        for posted in &left {
            let name = posted.operation.name();
            self.below.trace(
                FI_LOG_EP_CTRL,
                &format_args!("debug hook: outstanding: {name}"),
            );
        }
        // To leave receives posted is how most programs end.
        match sends {
            0 => self
                .below
                .trace(FI_LOG_EP_CTRL, &format_args!("debug hook: {message}")),
            _ => self.warn(call, &message),
        }
    }
}

/// Returns the operation that a call posts, if it will have a completion in a queue.
fn posting(call: &Call<'_>) -> Option<Posted> {
    let operation = call.operation();
    if !operation.is_transfer() || operation.is_inject() || operation.name().ends_with("valid") {
        return None;
    }
    let flags = call.flags().unwrap_or_else(|| call.default_flags());
    Some(Posted {
        endpoint: call.object(),
        operation,
        is_receive: operation.is_receive(),
        is_requested: flags & FI_COMPLETION != 0,
        stays: operation.is_receive() && flags & FI_MULTI_RECV != 0,
        ticket: 0,
    })
}

struct Flags(Option<u64>);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(flags) => write!(f, " and flags {flags:#x}"),
            None => Ok(()),
        }
    }
}

/// Numbers of objects by class.
struct List<'a>(&'a [(Kind, usize)]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, count)) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { ", " };
            write!(f, "{space}{count} {}", kind.name())?;
            if *count > 1 {
                f.write_str("s")?;
            }
        }
        if self.0.is_empty() {
            f.write_str("no objects that the hook knows")?;
        }
        Ok(())
    }
}
