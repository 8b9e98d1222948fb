//! Compares hints with what a provider supports, attribute by attribute.

mod domain;

use fabric_abi::*;

use self::domain::check_domain;
pub(super) use self::domain::mr_modes_for;
use super::collective::{self, RESERVED_TAG};
use super::mismatch::{Change, ENDPOINT_TYPE, Mismatch, Value};
use super::*;

type Outcome = Result<(), Mismatch>;

/// Compares the hints of a caller of interface `version` with what `base` supports. The error names
/// the first attribute that does not match.
pub fn check(base: &Info, version: u32, hints: &Hints) -> Outcome {
    // The endpoint type comes first: among several base entries it decides most often, and for an
    // entry of another type a later mismatch would be misleading.
    if let Some(ep) = &hints.ep {
        endpoint_type(&base.ep, ep)?;
    }
    within(
        "caps",
        FI_TYPE_CAPS,
        hints.caps,
        collective::available(base.caps),
    )?;
    requires("mode", hints.mode, required_mode(base, version, hints))?;
    if !address_format_fits(base.addr_format, hints.addr_format) {
        return Err(Mismatch {
            attribute: "addr_format",
            asked: named(hints.addr_format, FI_TYPE_ADDR_FORMAT),
            supported: named(base.addr_format, FI_TYPE_ADDR_FORMAT),
            change: Change::Choose,
        });
    }
    if let Some(fabric) = &hints.fabric {
        check_fabric(&base.fabric, fabric)?;
    }
    if let Some(domain) = &hints.domain {
        check_domain(&base.domain, version, hints, domain)?;
    }
    if let Some(ep) = &hints.ep {
        check_endpoint(base, version, hints, ep)?;
    }
    if let Some(rx) = &hints.rx {
        check_rx(&base.rx, hints.mode, rx)?;
    }
    if let Some(tx) = &hints.tx {
        check_tx(&base.tx, hints.mode, tx)?;
    }
    Ok(())
}

/// Returns whether a provider with one address format can serve a caller that asks for another: the
/// general socket address formats include the specific ones.
pub fn address_format_fits(supported: u32, asked: u32) -> bool {
    /// The address families that a format can carry; 0 for other formats.
    fn families(format: u32) -> u32 {
        const IN: u32 = 1;
        const IN6: u32 = 2;
        const IB: u32 = 4;
        match format {
            FI_SOCKADDR => IN | IN6 | IB,
            FI_SOCKADDR_IP => IN | IN6,
            FI_SOCKADDR_IN => IN,
            FI_SOCKADDR_IN6 => IN6,
            FI_SOCKADDR_IB => IB,
            _ => 0,
        }
    }
    let unspecified = FI_FORMAT_UNSPEC;
    asked == unspecified
        || supported == unspecified
        || asked == supported
        || families(asked) & families(supported) != 0
}

/// Returns the modes that the caller must be prepared for. A caller that cannot express
/// `FI_MR_LOCAL` uses the older `FI_LOCAL_MR`.
fn required_mode(base: &Info, api: u32, hints: &Hints) -> u64 {
    let local = FI_MR_LOCAL;
    let old_way = api < version(1, 5)
        || hints
            .domain
            .as_ref()
            .is_some_and(|domain| domain.mr_mode & local == 0);
    if old_way && base.domain.mr_mode & local != 0 {
        base.mode | MODE_LOCAL_MR
    } else {
        base.mode
    }
}

fn endpoint_type(base: &EpAttr, asked: &EpAttr) -> Outcome {
    let any = FI_EP_UNSPEC;
    if asked.ep_type != any && base.ep_type != any && asked.ep_type != base.ep_type {
        return Err(Mismatch {
            attribute: ENDPOINT_TYPE,
            asked: named(asked.ep_type, FI_TYPE_EP_TYPE),
            supported: named(base.ep_type, FI_TYPE_EP_TYPE),
            change: Change::Choose,
        });
    }
    Ok(())
}

fn check_fabric(base: &FabricAttr, asked: &FabricAttr) -> Outcome {
    if let (Some(ours), Some(list)) = (&base.prov_name, &asked.prov_name)
        && !names_provider(list, ours)
    {
        return Err(Mismatch {
            attribute: "fabric_attr->prov_name",
            asked: Value::Text(Some(list.clone())),
            supported: Value::Text(Some(ours.clone())),
            change: Change::Choose,
        });
    }
    if asked.prov_version > base.prov_version {
        return Err(Mismatch {
            attribute: "fabric_attr->prov_version",
            asked: Value::Version(asked.prov_version),
            supported: Value::Version(base.prov_version),
            change: Change::AtMost,
        });
    }
    // 0 means that the caller does not care.
    if asked.api_version != 0 && asked.api_version < base.api_version {
        return Err(Mismatch {
            attribute: "fabric_attr->api_version",
            asked: Value::Version(asked.api_version),
            supported: Value::Version(base.api_version),
            change: Change::Choose,
        });
    }
    Ok(())
}

/// Returns whether a list of provider names, separated by `;` and with `^` before excluded ones,
/// admits the provider `ours`.
fn names_provider(list: &str, ours: &str) -> bool {
    let mut any_wanted = false;
    for name in list.split(';').filter(|name| !name.is_empty()) {
        match name.strip_prefix('^') {
            Some(excluded) if excluded.eq_ignore_ascii_case(ours) => return false,
            Some(_) => {}
            None if name.eq_ignore_ascii_case(ours) => return true,
            None => any_wanted = true,
        }
    }
    !any_wanted
}

fn check_endpoint(base: &Info, api: u32, hints: &Hints, asked: &EpAttr) -> Outcome {
    let ep = &base.ep;
    if asked.protocol != FI_PROTO_UNSPEC && asked.protocol != ep.protocol {
        return Err(Mismatch {
            attribute: "ep_attr->protocol",
            asked: named(asked.protocol, FI_TYPE_PROTOCOL),
            supported: named(ep.protocol, FI_TYPE_PROTOCOL),
            change: Change::Choose,
        });
    }
    at_most(
        "ep_attr->protocol_version",
        asked.protocol_version as usize,
        ep.protocol_version as usize,
    )?;
    at_most("ep_attr->max_msg_size", asked.max_msg_size, ep.max_msg_size)?;
    contexts(
        "ep_attr->tx_ctx_cnt",
        asked.tx_ctx_cnt,
        ep.tx_ctx_cnt,
        base.domain.max_ep_tx_ctx,
        base.domain.max_ep_stx_ctx,
    )?;
    contexts(
        "ep_attr->rx_ctx_cnt",
        asked.rx_ctx_cnt,
        ep.rx_ctx_cnt,
        base.domain.max_ep_rx_ctx,
        base.domain.max_ep_srx_ctx,
    )?;
    if hints.caps & (FI_RMA | FI_ATOMIC) != 0 {
        at_most(
            "ep_attr->max_order_raw_size",
            asked.max_order_raw_size,
            ep.max_order_raw_size,
        )?;
        at_most(
            "ep_attr->max_order_war_size",
            asked.max_order_war_size,
            ep.max_order_war_size,
        )?;
        at_most(
            "ep_attr->max_order_waw_size",
            asked.max_order_waw_size,
            ep.max_order_waw_size,
        )?;
    }
    let keys_in_av = api >= version(1, 20)
        && hints
            .domain
            .as_ref()
            .is_some_and(|domain| domain.auth_key_size == FI_AV_AUTH_KEY);
    if keys_in_av {
        at_most("ep_attr->auth_key", asked.auth_key.is_some().into(), 0)?;
        at_most("ep_attr->auth_key_size", asked.auth_key_size, 0)?;
    } else if api >= version(1, 5) {
        key_size(
            "ep_attr->auth_key_size",
            asked.auth_key_size,
            ep.auth_key_size,
        )?;
    }
    let tag_format = match hints.caps & FI_COLLECTIVE {
        0 => ep.mem_tag_format,
        _ => ep.mem_tag_format & !RESERVED_TAG,
    };
    if hints.caps & FI_TAGGED != 0 && tag_bits(asked.mem_tag_format) > tag_bits(tag_format) {
        return Err(Mismatch {
            attribute: "ep_attr->mem_tag_format",
            asked: Value::Mask(asked.mem_tag_format),
            supported: Value::Mask(tag_format),
            change: Change::Drop(Value::Mask(asked.mem_tag_format & !tag_format)),
        });
    }
    Ok(())
}

/// Returns the number of tag bits in a tag format. The named formats (`FI_TAG_MPI`, `FI_TAG_CCL`)
/// ask for a restricted use of tags, which any number of bits allows.
fn tag_bits(format: u64) -> u32 {
    if format < FI_TAG_MAX_FORMAT {
        0
    } else {
        u64::BITS - format.leading_zeros()
    }
}

/// Checks the number of contexts of one direction: up to `limit`, or `FI_SHARED_CONTEXT` if sharing
/// is possible (`shared_limit`) or required (`supported`).
fn contexts(
    attribute: &'static str,
    asked: usize,
    supported: usize,
    limit: usize,
    shared_limit: usize,
) -> Outcome {
    let shared = FI_SHARED_CONTEXT;
    let fits = match asked {
        0 => supported != shared,
        _ if asked == shared => shared_limit != 0,
        _ => asked <= limit,
    };
    if fits {
        return Ok(());
    }
    let show = |count| {
        if count == shared {
            Value::Constant("FI_SHARED_CONTEXT")
        } else {
            Value::Count(count as u64)
        }
    };
    Err(Mismatch {
        attribute,
        asked: show(asked),
        supported: if asked == 0 {
            show(supported)
        } else {
            show(limit)
        },
        change: if asked == 0 {
            Change::Choose
        } else {
            Change::AtMost
        },
    })
}

pub(super) fn check_tx(base: &TxAttr, info_mode: u64, asked: &TxAttr) -> Outcome {
    // Callers copy all of `fi_info::caps` here.
    let caps = asked.caps & !(RX_CAPS & !TX_CAPS);
    within("tx_attr->caps", FI_TYPE_CAPS, caps, base.caps)?;
    let mode = if asked.mode != 0 {
        asked.mode
    } else {
        info_mode
    };
    requires("tx_attr->mode", mode, base.mode)?;
    within(
        "tx_attr->op_flags",
        FI_TYPE_OP_FLAGS,
        asked.op_flags,
        base.op_flags,
    )?;
    within(
        "tx_attr->msg_order",
        FI_TYPE_MSG_ORDER,
        asked.msg_order,
        base.msg_order,
    )?;
    within(
        "tx_attr->comp_order",
        FI_TYPE_MSG_ORDER,
        asked.comp_order,
        base.comp_order,
    )?;
    at_most("tx_attr->inject_size", asked.inject_size, base.inject_size)?;
    at_most("tx_attr->size", asked.size, base.size)?;
    at_most("tx_attr->iov_limit", asked.iov_limit, base.iov_limit)?;
    at_most(
        "tx_attr->rma_iov_limit",
        asked.rma_iov_limit,
        base.rma_iov_limit,
    )
}

pub(super) fn check_rx(base: &RxAttr, info_mode: u64, asked: &RxAttr) -> Outcome {
    let caps = asked.caps & !(TX_CAPS & !RX_CAPS);
    within("rx_attr->caps", FI_TYPE_CAPS, caps, base.caps)?;
    let mode = if asked.mode != 0 {
        asked.mode
    } else {
        info_mode
    };
    requires("rx_attr->mode", mode, base.mode)?;
    within(
        "rx_attr->op_flags",
        FI_TYPE_OP_FLAGS,
        asked.op_flags,
        base.op_flags,
    )?;
    within(
        "rx_attr->msg_order",
        FI_TYPE_MSG_ORDER,
        asked.msg_order,
        base.msg_order,
    )?;
    within(
        "rx_attr->comp_order",
        FI_TYPE_MSG_ORDER,
        asked.comp_order,
        base.comp_order,
    )?;
    at_most(
        "rx_attr->total_buffered_recv",
        asked.total_buffered_recv,
        base.total_buffered_recv,
    )?;
    at_most("rx_attr->size", asked.size, base.size)?;
    at_most("rx_attr->iov_limit", asked.iov_limit, base.iov_limit)
}

/// Checks a value that must not exceed a limit.
fn at_most(attribute: &'static str, asked: usize, supported: usize) -> Outcome {
    if asked <= supported {
        return Ok(());
    }
    Err(Mismatch {
        attribute,
        asked: Value::Count(asked as u64),
        supported: Value::Count(supported as u64),
        change: Change::AtMost,
    })
}

/// Checks a key size: 0, or exactly the provider's size if that is fixed.
fn key_size(attribute: &'static str, asked: usize, supported: usize) -> Outcome {
    if asked == 0 || asked == supported || (supported == ANY_KEY_SIZE && asked < supported) {
        return Ok(());
    }
    Err(Mismatch {
        attribute,
        asked: Value::Count(asked as u64),
        supported: Value::Count(supported as u64),
        change: Change::Choose,
    })
}

/// Checks bits that must all be supported.
fn within(attribute: &'static str, kind: fi_type, asked: u64, supported: u64) -> Outcome {
    if asked & !supported == 0 {
        return Ok(());
    }
    Err(Mismatch {
        attribute,
        asked: Value::Named(asked, kind),
        supported: Value::Named(supported, kind),
        change: Change::Drop(Value::Named(asked & !supported, kind)),
    })
}

/// Checks mode bits that the caller must be prepared for.
fn requires(attribute: &'static str, prepared: u64, required: u64) -> Outcome {
    if required & !prepared == 0 {
        return Ok(());
    }
    Err(Mismatch {
        attribute,
        asked: Value::Named(prepared, FI_TYPE_MODE),
        supported: Value::Named(required, FI_TYPE_MODE),
        change: Change::Accept(Value::Named(required & !prepared, FI_TYPE_MODE)),
    })
}

/// Checks a choice from an ordered list: a provider supports everything that demands at most as
/// much as what it offers.
fn ranked(
    attribute: &'static str,
    kind: fi_type,
    rank: fn(u32) -> u32,
    asked: u32,
    supported: u32,
) -> Outcome {
    if rank(asked) >= rank(supported) {
        return Ok(());
    }
    Err(Mismatch {
        attribute,
        asked: named(asked, kind),
        supported: named(supported, kind),
        change: Change::Choose,
    })
}

fn named(value: u32, kind: fi_type) -> Value {
    Value::Named(value.into(), kind)
}
