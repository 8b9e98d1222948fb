//! What is offered over the linked providers (fi_getinfo(3)).

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_message::{Sizes, attributes};
use prov_util::attr::{
    Base, DomainAttr, FabricAttr, Hints, Info, MR_BASIC, MR_BASIC_BITS, MR_SCALABLE, Opaque,
    Request, RxAttr, TxAttr, is_basic, version,
};
use prov_util::below::{HIDDEN, getinfo as getinfo_below};

use crate::VERSION;
use crate::address::MOST_ENTRIES;
use crate::links::{Link, Member};
use crate::params::Selection;
use crate::settings::Settings;

/// Name of the provider, and of its fabric.
pub const NAME: &str = "lnx";
/// The capabilities that linked providers must have.
const LINKED: u64 = FI_PEER | FI_AV_USER_ID;
/// The capabilities that linked endpoints have for the application.
const PASSED: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_SEND
    | FI_RECV
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RMA_EVENT
    | FI_HMEM;
/// Those of [`PASSED`] that a linked provider may lack, so that a link lacks them.
const OPTIONAL: u64 = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT | FI_HMEM;
/// The kinds of operations that are tried, for callers that ask for none: as many as the linked
/// providers have.
const KINDS: [u64; 6] = [
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT,
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC,
    FI_MSG | FI_TAGGED | FI_RMA,
    FI_MSG | FI_TAGGED,
    FI_TAGGED,
    FI_MSG,
];
const REACH: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Limit of the operands of an atomic operation in bytes; that of an endpoint is the smallest of
/// the linked domains.
pub const ATOMIC_LIMIT: usize = 4096;

/// An endpoint that is linked.
#[derive(Clone, Debug)]
pub struct Core {
    pub info: Info,
    pub is_shm: bool,
}

/// Returns the endpoints that match.
///
/// # Errors
/// `-FI_ENODATA` if none does.
pub fn getinfo(request: &Request<'_>, settings: &Settings) -> Result<Vec<Info>> {
    let none = Hints::default();
    let hints = request.hints.unwrap_or(&none);
    let mut infos = Vec::new();
    for link in &settings.links {
        let Ok(cores) = cores(link, request.version, hints) else {
            request.refuse(&format_args!(
                "a provider of the link {} offers no endpoint that can be linked",
                shown(link)
            ));
            continue;
        };
        infos.extend(of_link(request, hints, &cores, settings));
    }
    match infos.is_empty() {
        true => Err(Errno::ENODATA),
        false => Ok(infos),
    }
}

fn shown(link: &Link) -> String {
    let names = link.members.iter().map(|member| member.provider.as_str());
    names.collect::<Vec<_>>().join("+")
}

fn of_link(request: &Request<'_>, hints: &Hints, cores: &[Core], settings: &Settings) -> Vec<Info> {
    let base = base(cores, settings.selection);
    let judged_hints = Hints {
        // Addresses are exchanged by the application, whatever it calls their format.
        addr_format: FI_FORMAT_UNSPEC,
        ..hints.clone()
    };
    let name = |name: Option<&str>, own: &Option<String>| {
        let is_own = |name| {
            own.as_ref()
                .is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        name.is_none_or(is_own)
    };
    if !name(hints.fabric_name(), &base.limits.fabric.name)
        || !name(hints.domain_name(), &base.limits.domain.name)
    {
        request.refuse(&"the fabric or the domain has another name");
        return Vec::new();
    }
    let judged = Request {
        node: None,
        service: None,
        flags: 0,
        hints: request.hints.map(|_| &judged_hints),
        ..*request
    };
    let asked_reach = hints.caps & REACH;
    let main = main_core(cores);
    let fitting = judged.fitting(&[base]).unwrap_or_default().into_iter();
    let finished = fitting.map(|mut info| {
        if let Some(main) = main {
            info.src_addr = main.info.src_addr.clone();
            info.addr_format = main.info.addr_format;
            info.nic = main.info.nic.clone();
        }
        let reach = cores.iter().fold(0, |all, core| all | core.info.caps);
        info.caps = info.caps & !REACH | reach & REACH | asked_reach;
        info
    });
    finished.collect()
}

/// The endpoint whose address and interface the application sees: of a network, if there is one.
fn main_core(cores: &[Core]) -> Option<&Core> {
    let network = cores.iter().find(|core| !core.is_shm);
    network.or(cores.first())
}

/// Returns the endpoints of a link for an application that asks for `hints`, shm first.
///
/// # Errors
/// `-FI_ENODATA` if a provider of the link has none.
pub fn cores(link: &Link, api: u32, hints: &Hints) -> Result<Vec<Core>> {
    let kinds = hints.caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
    if hints.caps == 0 || kinds == 0 {
        let mut tries = KINDS
            .iter()
            .map(|kinds| cores_with(link, api, hints, *kinds | hints.caps & FI_HMEM));
        let found = tries.find(|found| found.is_ok());
        return found.unwrap_or(Err(Errno::ENODATA));
    }
    let mut caps = hints.caps & PASSED;
    if hints.caps & FI_COLLECTIVE != 0 {
        caps |= FI_TAGGED | FI_MSG;
    }
    if hints.caps & (FI_SOURCE | FI_DIRECTED_RECV | FI_COLLECTIVE) != 0 {
        caps |= FI_SOURCE | FI_DIRECTED_RECV;
    }
    cores_with(link, api, hints, caps)
}

fn cores_with(link: &Link, api: u32, hints: &Hints, caps: u64) -> Result<Vec<Core>> {
    let mut cores: Vec<Core> = Vec::new();
    for member in &link.members {
        let found = of_member(member, api, hints, caps)?;
        for info in found {
            let is_known = |core: &Core| {
                core.info.fabric.name == info.fabric.name
                    && core.info.domain.name == info.domain.name
                    && core.info.fabric.prov_name == info.fabric.prov_name
            };
            if !cores.iter().any(is_known) && cores.len() < MOST_ENTRIES {
                let is_shm = member.is_shm();
                cores.push(Core { info, is_shm });
            }
        }
    }
    match cores.is_empty() {
        true => Err(Errno::ENODATA),
        false => Ok(cores),
    }
}

fn of_member(member: &Member, api: u32, hints: &Hints, caps: u64) -> Result<Vec<Info>> {
    let wanted = wanted(member, api, hints, caps);
    let mut found = getinfo_below(api, None, None, HIDDEN, &wanted)?;
    found.retain(|info| {
        let name = info.fabric.prov_name.as_deref();
        name.is_some_and(|name| has_layers(name, &member.provider))
    });
    if member.is_shm() {
        found.truncate(1);
    } else if !member.domains.is_empty() {
        // The first one of each domain, as in the C library.
        let domains = member.domains.iter();
        let first = |domain: &String| {
            let is_it = |info: &&Info| info.domain.name.as_ref() == Some(domain);
            found.iter().find(is_it).cloned()
        };
        found = domains.filter_map(first).collect();
    }
    match found.is_empty() {
        true => Err(Errno::ENODATA),
        false => Ok(found),
    }
}

/// Whether two names have the same layers, in any order.
fn has_layers(name: &str, other: &str) -> bool {
    let layers = |name: &str| {
        let mut layers: Vec<String> = name
            .split(';')
            .map(|layer| layer.trim().to_ascii_lowercase())
            .collect();
        layers.sort_unstable();
        layers
    };
    layers(name) == layers(other)
}

/// Returns the hints for a linked provider.
fn wanted(member: &Member, api: u32, hints: &Hints, caps: u64) -> Info {
    let tx = hints.tx.as_ref();
    let rx = hints.rx.as_ref();
    let domain = hints.domain.as_ref();
    // A linked endpoint is used by the threads that the application uses for all of them, and with
    // automatic progress by the one of this provider, which drives all.
    let threading = match domain.map_or(FI_THREAD_UNSPEC, |domain| domain.threading) {
        FI_THREAD_DOMAIN if !domain.is_some_and(is_automatic) => FI_THREAD_DOMAIN,
        _ => FI_THREAD_SAFE,
    };
    let mut wanted = Info {
        caps: caps | LINKED,
        tx: TxAttr {
            inject_size: tx.map_or(0, |tx| tx.inject_size),
            size: tx.map_or(0, |tx| tx.size),
            msg_order: tx.map_or(0, |tx| tx.msg_order),
            ..TxAttr::default()
        },
        rx: RxAttr {
            size: rx.map_or(0, |rx| rx.size),
            msg_order: rx.map_or(0, |rx| rx.msg_order),
            ..RxAttr::default()
        },
        domain: DomainAttr {
            threading,
            control_progress: FI_PROGRESS_MANUAL,
            data_progress: FI_PROGRESS_MANUAL,
            resource_mgmt: domain.map_or(FI_RM_UNSPEC, |domain| domain.resource_mgmt),
            mr_mode: mr_mode(api, hints),
            ..DomainAttr::default()
        },
        ..Info::default()
    };
    wanted.ep.ep_type = FI_EP_RDM;
    wanted.fabric.prov_name = Some(member.provider.clone());
    wanted
}

/// The registration modes of the linked domains: keys are always chosen by this side, so that they
/// are the same in all.
fn mr_mode(api: u32, hints: &Hints) -> i32 {
    let asked = hints.domain.as_ref().map_or(0, |domain| domain.mr_mode);
    let is_virtual = asked & MR_BASIC != 0
        || is_basic(hints.caps, asked)
        || hints.domain.is_some() && api < version(1, 5) && asked == 0;
    match is_virtual {
        true => FI_MR_VIRT_ADDR | FI_MR_ALLOCATED,
        false => FI_MR_ALLOCATED,
    }
}

/// Returns the attributes of an endpoint over these.
pub fn base(cores: &[Core], selection: Selection) -> Base {
    let least = |of: fn(&Info) -> usize| {
        let values = cores.iter().map(|core| of(&core.info));
        values.min().unwrap_or(0)
    };
    let all = cores
        .iter()
        .fold(u64::MAX, |all, core| all & core.info.caps);
    let sizes = Sizes {
        inject: least(|info| info.tx.inject_size),
        atomic: ATOMIC_LIMIT,
        message: Sizes::LONGEST.min(least(|info| info.ep.max_msg_size)),
    };
    let mut info = attributes::with_devices(attributes::rdm(NAME, VERSION, sizes));
    let gone = OPTIONAL & !all;
    const NOT_HERE: u64 = FI_SHARED_AV | FI_PEER;
    info.caps &= !(gone | NOT_HERE);
    info.caps |= REACH;
    info.tx.caps &= !gone;
    info.rx.caps &= !gone;
    info.domain.caps = info.domain.caps & !NOT_HERE | REACH;
    let narrow = |limit: &mut usize, least: usize| *limit = (*limit).min(least.max(1));
    narrow(&mut info.tx.iov_limit, least(|info| info.tx.iov_limit));
    narrow(
        &mut info.tx.rma_iov_limit,
        least(|info| info.tx.rma_iov_limit),
    );
    narrow(&mut info.rx.iov_limit, least(|info| info.rx.iov_limit));
    narrow(
        &mut info.domain.mr_iov_limit,
        least(|info| info.domain.mr_iov_limit),
    );
    narrow(
        &mut info.domain.mr_key_size,
        least(|info| info.domain.mr_key_size),
    );
    info.domain.cq_data_size = least(|info| info.domain.cq_data_size);
    info.tx.op_flags &= !FI_COMMIT_COMPLETE;
    if selection == Selection::PerMessage && cores.iter().filter(|core| !core.is_shm).count() > 1 {
        (info.tx.msg_order, info.rx.msg_order) = (0, 0);
    } else {
        let order = cores
            .iter()
            .fold(u64::MAX, |all, core| all & core.info.tx.msg_order);
        info.tx.msg_order &= order;
        info.rx.msg_order &= order | attributes::BEHIND_MESSAGES;
    }
    info.ep.max_order_raw_size = least(|info| info.ep.max_order_raw_size);
    info.ep.max_order_war_size = least(|info| info.ep.max_order_war_size);
    info.ep.max_order_waw_size = least(|info| info.ep.max_order_waw_size);
    info.ep.protocol = FI_PROTO_LNX;
    info.ep.protocol_version = 1;
    let names = cores
        .iter()
        .filter_map(|core| core.info.domain.name.as_deref());
    info.domain.name = Some(names.collect::<Vec<_>>().join("+"));
    info.domain.control_progress = FI_PROGRESS_AUTO;
    info.domain.data_progress = FI_PROGRESS_AUTO;
    info.domain.max_ep_stx_ctx = 0;
    info.domain.max_ep_srx_ctx = 0;
    info.domain.mr_mode = MR_BASIC | MR_SCALABLE;
    info.fabric = FabricAttr {
        fabric: Opaque::NULL,
        name: Some(NAME.to_owned()),
        prov_name: Some(NAME.to_owned()),
        prov_version: VERSION,
        api_version: 0,
    };
    Base {
        limits: info,
        tx_size: least(|info| info.tx.size),
        rx_size: least(|info| info.rx.size),
        inject_size: 0,
        progress: FI_PROGRESS_MANUAL,
    }
}

/// Whether a domain makes progress without calls of the application.
pub fn is_automatic(domain: &DomainAttr) -> bool {
    domain.data_progress == FI_PROGRESS_AUTO || domain.control_progress == FI_PROGRESS_AUTO
}

/// Returns the link and its endpoints for a domain with these attributes.
///
/// # Errors
/// `-FI_ENODATA` if no link has that name any more.
pub fn for_domain(settings: &Settings, api: u32, info: &Info) -> Result<Vec<Core>> {
    let hints = Hints::from(info.clone());
    let name = info.domain.name.as_deref();
    let mut found = settings.links.iter().filter_map(|link| {
        let cores = cores(link, api, &hints).ok()?;
        let base = base(&cores, settings.selection);
        let is_it = name.is_none() || base.limits.domain.name.as_deref() == name;
        is_it.then_some(cores)
    });
    found.next().ok_or(Errno::ENODATA)
}

/// Returns the kinds of endpoints that links have, for any application.
pub fn bases(settings: &Settings, api: u32) -> Vec<Base> {
    let mut bases = Vec::new();
    // Some orders are offered only to those who ask for them.
    let orders = [attributes::BEHIND_MESSAGES, 0];
    for link in &settings.links {
        // And memory of devices.
        let kinds = KINDS.iter().flat_map(|kinds| [*kinds, *kinds | FI_HMEM]);
        for (kinds, msg_order) in kinds.flat_map(|kinds| orders.map(|order| (kinds, order))) {
            let hints = Hints {
                tx: Some(TxAttr {
                    msg_order,
                    ..TxAttr::default()
                }),
                ..Hints::default()
            };
            if let Ok(cores) = cores_with(link, api, &hints, kinds) {
                bases.push(base(&cores, settings.selection));
            }
        }
    }
    bases
}

/// Whether the modes of a domain refer to memory by virtual addresses.
pub fn is_virtual(mr_mode: i32) -> bool {
    mr_mode & (MR_BASIC | MR_BASIC_BITS & FI_MR_VIRT_ADDR) != 0
}
