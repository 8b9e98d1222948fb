//! Compares the attributes of a domain.

use fabric_abi::*;

use super::super::mismatch::{Change, Mismatch, Value};
use super::super::*;
use super::{Outcome, at_most, key_size, named, ranked, requires, within};

/// Rank of a threading level, from the one that demands most of a provider.
fn threading_rank(level: u32) -> u32 {
    match level {
        FI_THREAD_SAFE => 1,
        FI_THREAD_FID => 2,
        FI_THREAD_ENDPOINT => 3,
        FI_THREAD_COMPLETION => 4,
        FI_THREAD_DOMAIN => 5,
        FI_THREAD_UNSPEC => 6,
        _ => 0,
    }
}

/// Rank of a progress model, from the one that demands most of a provider.
fn progress_rank(model: u32) -> u32 {
    match model {
        FI_PROGRESS_AUTO => 1,
        FI_PROGRESS_MANUAL => 2,
        FI_PROGRESS_CONTROL_UNIFIED => 3,
        FI_PROGRESS_UNSPEC => 4,
        _ => 0,
    }
}

/// Rank of a resource management model, likewise.
fn resource_rank(model: u32) -> u32 {
    match model {
        FI_RM_ENABLED => 1,
        FI_RM_DISABLED => 2,
        FI_RM_UNSPEC => 3,
        _ => 0,
    }
}

/// Returns a resource management model as messages have it.
fn resource_management(model: u32) -> Value {
    match model {
        FI_RM_ENABLED => Value::Constant("FI_RM_ENABLED"),
        FI_RM_DISABLED => Value::Constant("FI_RM_DISABLED"),
        FI_RM_UNSPEC => Value::Constant("FI_RM_UNSPEC"),
        other => Value::Count(other.into()),
    }
}

/// Compares the attributes of a domain (fi_domain(3)). The numbers of objects, contexts and groups,
/// the size of a memory key and the model of control progress are reported to callers but not
/// compared: callers copy them from other results.
pub fn check_domain(base: &DomainAttr, api: u32, hints: &Hints, asked: &DomainAttr) -> Outcome {
    ranked(
        "domain_attr->threading",
        FI_TYPE_THREADING,
        threading_rank,
        asked.threading,
        base.threading,
    )?;
    ranked(
        "domain_attr->data_progress",
        FI_TYPE_PROGRESS,
        progress_rank,
        asked.data_progress,
        base.data_progress,
    )?;
    if resource_rank(asked.resource_mgmt) < resource_rank(base.resource_mgmt) {
        return Err(Mismatch {
            attribute: "domain_attr->resource_mgmt",
            asked: resource_management(asked.resource_mgmt),
            supported: resource_management(base.resource_mgmt),
            change: Change::Choose,
        });
    }
    let any = FI_AV_UNSPEC;
    if asked.av_type != any && base.av_type != any && asked.av_type != base.av_type {
        return Err(Mismatch {
            attribute: "domain_attr->av_type",
            asked: named(asked.av_type, FI_TYPE_AV_TYPE),
            supported: named(base.av_type, FI_TYPE_AV_TYPE),
            change: Change::Choose,
        });
    }
    at_most(
        "domain_attr->cq_data_size",
        asked.cq_data_size,
        base.cq_data_size,
    )?;
    check_mr_mode(base.mr_mode, api, hints, asked.mr_mode)?;
    if api >= version(1, 5) {
        check_domain_since_1_5(base, api, asked)?;
    }
    Ok(())
}

fn check_domain_since_1_5(base: &DomainAttr, api: u32, asked: &DomainAttr) -> Outcome {
    at_most("domain_attr->cntr_cnt", asked.cntr_cnt, base.cntr_cnt)?;
    at_most(
        "domain_attr->mr_iov_limit",
        asked.mr_iov_limit,
        base.mr_iov_limit,
    )?;
    within("domain_attr->caps", FI_TYPE_CAPS, asked.caps, base.caps)?;
    requires("domain_attr->mode", asked.mode, base.mode)?;
    at_most(
        "domain_attr->max_err_data",
        asked.max_err_data,
        base.max_err_data,
    )?;
    at_most("domain_attr->mr_cnt", asked.mr_cnt, base.mr_cnt)?;

    if api >= version(1, 20) && asked.auth_key_size == FI_AV_AUTH_KEY {
        at_most("domain_attr->auth_key", asked.auth_key.is_some().into(), 0)?;
        if base.max_ep_auth_key == 0 {
            return Err(Mismatch {
                attribute: "domain_attr->auth_key_size",
                asked: Value::Text(Some("FI_AV_AUTH_KEY".into())),
                supported: Value::Count(base.auth_key_size as u64),
                change: Change::Choose,
            });
        }
    } else {
        key_size(
            "domain_attr->auth_key_size",
            asked.auth_key_size,
            base.auth_key_size,
        )?;
    }
    if api >= version(1, 20) {
        at_most(
            "domain_attr->max_ep_auth_key",
            asked.max_ep_auth_key,
            base.max_ep_auth_key,
        )?;
    }
    if api >= version(2, 5) {
        // 0 on the provider's side means the full range.
        for (attribute, asked, base) in [
            (
                "domain_attr->max_cntr_value",
                asked.max_cntr_value,
                base.max_cntr_value,
            ),
            (
                "domain_attr->max_err_cntr_value",
                asked.max_err_cntr_value,
                base.max_err_cntr_value,
            ),
        ] {
            if base != 0 && asked > base {
                return Err(Mismatch {
                    attribute,
                    asked: Value::Count(asked),
                    supported: Value::Count(base),
                    change: Change::AtMost,
                });
            }
        }
    }
    Ok(())
}

fn check_mr_mode(base: i32, api: u32, hints: &Hints, asked: i32) -> Outcome {
    let local = FI_MR_LOCAL;
    let old = MR_BASIC | MR_SCALABLE;
    let bits = |mode: i32| Value::Named(mode as u32 as u64, FI_TYPE_MR_MODE);
    let local_ok = base & local == 0 || hints.mode & MODE_LOCAL_MR != 0 || asked & local != 0;
    let rest_ok = if api < version(1, 5) {
        match asked {
            0 => base & old != 0,
            MR_BASIC | MR_SCALABLE => base & asked != 0,
            _ => false,
        }
    } else if asked & old != 0 {
        // An old mode must not be combined with others.
        (asked == MR_BASIC || asked == MR_SCALABLE) && base & asked != 0
    } else {
        let required = mr_modes_for(hints.caps, base);
        asked == 0 || asked & required == required
    };
    if local_ok && rest_ok {
        return Ok(());
    }
    Err(Mismatch {
        attribute: "domain_attr->mr_mode",
        asked: bits(asked),
        supported: bits(base),
        change: if api >= version(1, 5) && asked & old == 0 {
            Change::Accept(bits(
                (mr_modes_for(hints.caps, base) | base & local) & !asked,
            ))
        } else {
            Change::Choose
        },
    })
}

/// Returns the registration modes, of those that a provider requires, that apply under these
/// capabilities.
pub fn mr_modes_for(caps: u64, mut mr_mode: i32) -> i32 {
    if caps & FI_HMEM == 0 {
        mr_mode &= !FI_MR_HMEM;
    }
    if !is_rma_target(caps) {
        if mr_mode & (FI_MR_LOCAL | FI_MR_HMEM) == 0 {
            return 0;
        }
        mr_mode &= !MR_REMOTE_MODES;
    }
    mr_mode & !(MR_BASIC | MR_SCALABLE)
}
