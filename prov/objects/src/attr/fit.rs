//! Narrows what a provider supports to the hints.

use fabric_abi::*;

use super::check::mr_modes_for;
use super::collective::RESERVED_TAG;
use super::*;

/// Narrows `base` to the hints, which must have passed [`check()`]. Without hints, everything that
/// the provider supports is returned, except for attributes with their own default.
pub fn fit(base: &Base, version: u32, hints: Option<&Hints>) -> Info {
    let mut info = base.limits.clone();
    let no_hints = Hints::default();
    let asked = hints.unwrap_or(&no_hints);

    info.caps = match hints {
        Some(hints) => info_caps(&base.limits, version, hints),
        None => base.limits.caps & !FINER_CAPS,
    };
    info.mode = info_mode(&base.limits, version, asked);
    info.handle = asked.handle;
    if base.progress != FI_PROGRESS_UNSPEC {
        info.domain.data_progress = base.progress;
        info.domain.control_progress = base.progress;
    }
    fit_domain(&mut info.domain, version, asked.domain.as_ref(), info.caps);
    let wants_registered = |domain: &DomainAttr| domain.mr_mode & FI_MR_HMEM != 0;
    if info.caps & FI_HMEM != 0
        && info.domain.mr_mode & (MR_BASIC | MR_SCALABLE) == 0
        && asked.domain.as_ref().is_some_and(wants_registered)
    {
        // With descriptors no address has to be looked up.
        info.domain.mr_mode |= FI_MR_HMEM;
    }
    fit_endpoint(&mut info.ep, version, asked.ep.as_ref(), info.caps);
    if let Some(fabric) = &asked.fabric {
        info.fabric.fabric = fabric.fabric;
    }

    replace(&mut info.tx.size, base.tx_size);
    replace(&mut info.tx.inject_size, base.inject_size);
    info.tx.caps = attr_caps(info.caps, asked.tx.as_ref().map(|tx| tx.caps), info.tx.caps);
    // The provider's supported flags are not the default flags of operations.
    info.tx.op_flags = 0;
    if let Some(tx) = &asked.tx {
        info.tx.op_flags = tx.op_flags;
        replace(&mut info.tx.inject_size, tx.inject_size);
        replace(&mut info.tx.size, tx.size);
        replace(&mut info.tx.iov_limit, tx.iov_limit);
        replace(&mut info.tx.rma_iov_limit, tx.rma_iov_limit);
        if tx.tclass != 0 {
            info.tx.tclass = tx.tclass;
        }
    }

    replace(&mut info.rx.size, base.rx_size);
    info.rx.caps = attr_caps(info.caps, asked.rx.as_ref().map(|rx| rx.caps), info.rx.caps);
    info.rx.op_flags = 0;
    if let Some(rx) = &asked.rx {
        info.rx.op_flags = rx.op_flags;
        replace(&mut info.rx.size, rx.size);
        replace(&mut info.rx.iov_limit, rx.iov_limit);
    }
    info
}

/// Capabilities that refine broader ones. Callers that know only the broader ones do not ask for
/// these, and do not get them.
const FINER_CAPS: u64 = FI_TAGGED_DIRECTED_RECV
    | FI_EXACT_DIRECTED_RECV
    | FI_TAGGED_MULTI_RECV
    | FI_COLLECTIVE
    | FI_NAMED_RX_CTX
    | FI_HMEM
    | FI_TRIGGER;

/// Secondary capabilities that are returned only on request: the finer ones, and those with a cost,
/// since the source of each message has to be resolved, or the flags of each call to be looked at.
const ON_REQUEST: u64 = FI_SOURCE | FI_SOURCE_ERR | FI_TAGGED_MULTI_RECV | FI_TRIGGER;

/// Replaces a value by the requested one, if there is one.
fn replace(value: &mut usize, asked: usize) {
    if asked != 0 {
        *value = asked;
    }
}

/// Returns the capabilities of `fi_info` for given hints.
fn info_caps(base: &Info, api: u32, hints: &Hints) -> u64 {
    let caps = asked_caps(hints.caps, base.caps).unwrap_or(base.caps & !FINER_CAPS);
    let caps = with_directions(caps, base.caps);

    // A caller that is not prepared for the registration modes which remote access requires, and
    // did not explicitly ask for remote access, does not get it.
    let required = base.domain.mr_mode & MR_REMOTE_MODES;
    if required == 0 || !is_rma_target(caps) {
        return caps;
    }
    let prepared = hints.domain.as_ref().is_some_and(|domain| {
        let mode = domain.mr_mode;
        (api < version(1, 5) && mode == 0) || mode == MR_BASIC || mode & required == required
    });
    if prepared {
        caps
    } else {
        caps & !(FI_REMOTE_READ | FI_REMOTE_WRITE)
    }
}

/// Returns the requested primary capabilities, and the secondary ones without a cost; `None` if
/// nothing was requested.
fn asked_caps(asked: u64, supported: u64) -> Option<u64> {
    if asked == 0 {
        return None;
    }
    let caps = asked & PRIMARY_CAPS | supported & SECONDARY_CAPS;
    Some(caps & !ON_REQUEST | asked & ON_REQUEST)
}

/// Returns the capabilities of one attribute structure (transmit, receive, domain).
fn attr_caps(info_caps: u64, asked: Option<u64>, supported: u64) -> u64 {
    let caps = match asked_caps(asked.unwrap_or(0) & supported, supported) {
        Some(caps) => caps,
        None => {
            let primary = info_caps & supported & PRIMARY_CAPS;
            primary | supported & SECONDARY_CAPS & (info_caps | !ON_REQUEST)
        }
    };
    with_directions(caps, supported)
}

/// Adds all directions if the capabilities name none.
fn with_directions(mut caps: u64, supported: u64) -> u64 {
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & MSG_DIRECTIONS == 0 {
        caps |= supported & MSG_DIRECTIONS;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & RMA_DIRECTIONS == 0 {
        caps |= supported & RMA_DIRECTIONS;
    }
    caps
}

/// Returns the modes that the caller has to follow.
fn info_mode(base: &Info, api: u32, hints: &Hints) -> u64 {
    let old_names = api < version(1, 5)
        || hints
            .domain
            .as_ref()
            .is_some_and(|domain| domain.mr_mode & (MR_BASIC | MR_SCALABLE) != 0);
    if old_names && base.domain.mr_mode & FI_MR_LOCAL != 0 {
        base.mode | MODE_LOCAL_MR
    } else {
        base.mode
    }
}

fn fit_domain(domain: &mut DomainAttr, api: u32, hints: Option<&DomainAttr>, info_caps: u64) {
    domain.mr_mode = mr_mode(
        domain.mr_mode,
        api,
        hints.map_or(0, |hints| hints.mr_mode),
        hints.is_some(),
        info_caps,
    );
    domain.caps = attr_caps(info_caps, hints.map(|hints| hints.caps), domain.caps);
    for value in [&mut domain.max_cntr_value, &mut domain.max_err_cntr_value] {
        if *value == 0 {
            *value = u64::MAX;
        }
    }
    if domain.auth_key_size == ANY_KEY_SIZE {
        domain.auth_key_size = 0;
    }
    let Some(hints) = hints else { return };

    domain.domain = hints.domain;
    if hints.threading != FI_THREAD_UNSPEC {
        domain.threading = hints.threading;
    }
    if hints.data_progress != FI_PROGRESS_UNSPEC {
        domain.data_progress = hints.data_progress;
        domain.control_progress = hints.data_progress;
    }
    if api < version(2, 0) && hints.control_progress != FI_PROGRESS_UNSPEC {
        domain.control_progress = hints.control_progress;
    }
    if hints.av_type != FI_AV_UNSPEC {
        domain.av_type = hints.av_type;
    }
    if hints.tclass != 0 {
        domain.tclass = hints.tclass;
    }
    replace(&mut domain.max_ep_auth_key, hints.max_ep_auth_key);
    if hints.auth_key_size != 0 && api >= version(1, 5) {
        domain.auth_key_size = hints.auth_key_size;
        domain.auth_key = hints.auth_key.clone();
    }
}

/// Returns the registration mode: an old mode for a caller that knows only these or names one,
/// otherwise the required bits.
fn mr_mode(supported: i32, api: u32, asked: i32, with_hints: bool, info_caps: u64) -> i32 {
    let old = MR_BASIC | MR_SCALABLE;
    let required = supported & !old;
    if asked & old != 0 {
        asked
    } else if api < version(1, 5) {
        if supported != 0 && supported != MR_SCALABLE {
            MR_BASIC
        } else {
            MR_SCALABLE
        }
    } else if with_hints && asked & required != required {
        mr_modes_for(info_caps, asked & required)
    } else if supported & MR_BASIC != 0 && is_basic(info_caps, asked) {
        required | MR_BASIC_BITS
    } else {
        required
    }
}

fn fit_endpoint(ep: &mut EpAttr, api: u32, hints: Option<&EpAttr>, info_caps: u64) {
    if ep.auth_key_size == ANY_KEY_SIZE {
        ep.auth_key_size = 0;
    }
    if info_caps & FI_COLLECTIVE != 0 && ep.mem_tag_format > RESERVED_TAG {
        ep.mem_tag_format &= !RESERVED_TAG;
    }
    let Some(hints) = hints else { return };
    if info_caps & (FI_RMA | FI_ATOMIC) != 0 {
        // Applies only to requested capabilities for remote memory; otherwise the limits are not
        // compared.
        let narrow = |limit: &mut usize, asked: usize| replace(limit, asked.min(*limit));
        narrow(&mut ep.max_order_raw_size, hints.max_order_raw_size);
        narrow(&mut ep.max_order_war_size, hints.max_order_war_size);
        narrow(&mut ep.max_order_waw_size, hints.max_order_waw_size);
    }
    replace(&mut ep.tx_ctx_cnt, hints.tx_ctx_cnt);
    replace(&mut ep.rx_ctx_cnt, hints.rx_ctx_cnt);
    if hints.auth_key_size != 0 && api >= version(1, 5) {
        ep.auth_key_size = hints.auth_key_size;
        ep.auth_key = hints.auth_key.clone();
    }
    if hints.mem_tag_format != 0 && hints.mem_tag_format < FI_TAG_MAX_FORMAT {
        ep.mem_tag_format = hints.mem_tag_format;
    }
}
