//! The library's state, created on first use.

use std::sync::OnceLock;

use fabric_abi::{FI_FORMAT_UNSPEC, fi_provider};

use crate::candidate::Candidate;
use crate::level::CORE;
use crate::loader::{self, SearchPath};
use crate::logging;
use crate::misspelt;
use crate::name_filter::{LAYER_SEPARATOR, NameFilter};
use crate::params::{self, Definition, Kind};
use crate::provider::Provider;
use crate::registry::{ORDER, Registry};
use crate::tostr::names;
use crate::version::{RELEASE, Version};

/// The state of the exported functions. Immutable once it is created.
pub struct Framework {
    pub registry: Registry,
    /// The names of the hooks to install over each fabric (`FI_HOOK`).
    pub hooks: Vec<String>,
    /// The only address format that results may have (`FI_ADDR_FORMAT`).
    pub address_format: Option<u32>,
}

static FRAMEWORK: OnceLock<Framework> = OnceLock::new();

/// Returns the state; the first caller initializes the library.
pub fn get() -> &'static Framework {
    FRAMEWORK.get_or_init(set_up)
}

/// Returns the state if the library is initialized.
pub fn existing() -> Option<&'static Framework> {
    FRAMEWORK.get()
}

const PARAMETERS: [Definition; 27] = [
    Definition {
        name: "provider",
        kind: Kind::Text,
        help: "Comma separated list of the providers to use, or not to use when it begins \
               with ^ (default: all available)",
    },
    Definition {
        name: "provider_path",
        kind: Kind::Text,
        help: "Colon separated list of directories to search for external providers. \
               + before the full path of a library makes it the preferred provider of its name. \
               @ before the whole list makes the first provider found of each name the one to \
               use, instead of the one with the highest version \
               (default: the directory libfabric beside the library)",
    },
    Definition {
        name: "addr_format",
        kind: Kind::Text,
        help: "Let fi_getinfo return only results with this address format, one of those in \
               fi_getinfo(3) (default: all)",
    },
    Definition {
        name: "hook",
        kind: Kind::Text,
        help: "Semicolon separated list of the hooking providers to install over the provider \
               that an application uses (default: none)",
    },
    Definition {
        name: "perf_cntr",
        kind: Kind::Text,
        help: "What the perf hook counts for each call: cpu_instr, cpu_cycles, or time, which it \
               also counts where the processor's counters cannot be read (default: cpu_instr)",
    },
    Definition {
        name: "mr_cache_max_count",
        kind: Kind::Size,
        help: "The number of memory registrations that each domain of a provider with a \
               registration cache keeps at most, 0 for none (default: 1024)",
    },
    Definition {
        name: "mr_cache_max_size",
        kind: Kind::Size,
        help: "The bytes that these registrations cover at most, 0 for any number (default: 0)",
    },
    Definition {
        name: "mr_cache_monitor",
        kind: Kind::Text,
        help: "What tells registration caches that memory is unmapped: userfaultfd, or disabled, \
               which has no registrations kept (default: userfaultfd)",
    },
    Definition {
        name: "fork_unsafe",
        kind: Kind::Bool,
        help: "Allow what makes fork() unsafe for some providers and may be faster \
               (default: false)",
    },
    Definition {
        name: "universe_size",
        kind: Kind::Size,
        help: "The number of processes that the application will have at most, for providers \
               that size their resources by it (default: up to the provider)",
    },
    Definition {
        name: "av_remove_cleanup",
        kind: Kind::Bool,
        help: "When an address is removed from an address vector, release what belongs to it, \
               hidden connections for instance, even where that ends transfers from that peer \
               (default: false)",
    },
    Definition {
        name: "hmem",
        kind: Kind::Text,
        help: "The interfaces to memory of devices to look for, separated by commas: cuda, rocr, \
               ze, or system for none (default: all)",
    },
    Definition {
        name: "hmem_disable_p2p",
        kind: Kind::Bool,
        help: "Devices do not move the data of other devices' memory; no provider of this library \
               has them do that, so that it has no effect (default: false)",
    },
    Definition {
        name: "hmem_cuda_enable_xfer",
        kind: Kind::Bool,
        help: "Copy memory of CUDA devices with calls of the CUDA driver; without that, such memory \
               cannot be used (default: true)",
    },
    Definition {
        name: "hmem_cuda_enable_async_copy",
        kind: Kind::Bool,
        help: "Copies of CUDA memory never hold up the calling thread's default stream: they run on \
               streams of this library in any case, so that it has no effect (default: true)",
    },
    Definition {
        name: "hmem_cuda_use_gdrcopy",
        kind: Kind::Bool,
        help: "Copy short pieces of registered CUDA memory through a mapping of GDRCopy's, where \
               libgdrapi.so.2 and its kernel module are (default: true)",
    },
    Definition {
        name: "hmem_cuda_use_dmabuf",
        kind: Kind::Bool,
        help: "Register CUDA memory with network devices by dma-buf files; applications pass the \
               files themselves (FI_MR_DMABUF), so that it has no effect (default: true)",
    },
    Definition {
        name: "hmem_rocr_use_dmabuf",
        kind: Kind::Bool,
        help: "The same for ROCr memory, without effect (default: true)",
    },
    Definition {
        name: "hmem_ze_use_dmabuf",
        kind: Kind::Bool,
        help: "The same for Level Zero memory, without effect (default: true)",
    },
    Definition {
        name: "hmem_neuron_use_dmabuf",
        kind: Kind::Bool,
        help: "The same for Neuron memory, which this library does not copy, without effect \
               (default: true)",
    },
    Definition {
        name: "hmem_synapseai_use_dmabuf",
        kind: Kind::Bool,
        help: "The same for SynapseAI memory, which this library does not copy, without effect \
               (default: true)",
    },
    Definition {
        name: "hmem_ze_copy_engine",
        kind: Kind::Text,
        help: "The engines of Level Zero devices that copy: the number of a group, or that and an \
               index in it, with a dot between them (default: 0.0)",
    },
    Definition {
        name: "rocr_d2h_threshold",
        kind: Kind::Size,
        help: "Bytes of ROCr memory from which on the runtime copies to the host, instead of the \
               processor; it copies all of them here, so that it has no effect (default: 16384)",
    },
    Definition {
        name: "mr_cuda_cache_monitor_enabled",
        kind: Kind::Bool,
        help: "Keep registrations of CUDA memory in the cache of registrations; only those of the \
               host's memory are kept, so that it has no effect (default: false)",
    },
    Definition {
        name: "mr_rocr_cache_monitor_enabled",
        kind: Kind::Bool,
        help: "The same for ROCr memory, without effect (default: false)",
    },
    Definition {
        name: "mr_ze_cache_monitor_enabled",
        kind: Kind::Bool,
        help: "The same for Level Zero memory, without effect (default: false)",
    },
    Definition {
        name: "offload_coll_provider",
        kind: Kind::Text,
        help: "The provider that collective operations are offloaded to; there is none in this \
               library, so that a name has no effect (default: none)",
    },
];

fn set_up() -> Framework {
    logging::init();
    params::define_core(&PARAMETERS);
    let own_path = loader::own_path().unwrap_or_default();
    log::info!(
        target: CORE,
        "libfabric (Rust) {RELEASE}, in place of libfabric {RELEASE} (libfabric.so.1, interface {}), \
         loaded from {}",
        Version::LIBRARY,
        own_path.display()
    );
    params::log_config_file();
    let wanted = params::core_text("provider");
    let filter = NameFilter::parse(wanted.as_deref().unwrap_or_default());
    if wanted.is_some() && filter.is_empty() {
        log::warn!(target: CORE, "FI_PROVIDER names no provider: it is ignored, as if unset");
    }
    let mut registry = Registry::new(filter);
    let path = SearchPath::parse(
        params::core_text("provider_path").as_deref(),
        &loader::default_directory(),
    );
    registry.set_precedence(path.precedence);
    path.load(&ORDER, |found| match found {
        Ok(candidate) => registry.register(candidate),
        Err(useless) => registry.reject(useless),
    });
    for built_in in built_in_providers()
        .into_iter()
        .chain(prov_hook::providers())
    {
        // SAFETY: a built-in provider is a static structure of this library, valid as long as the
        // process.
        if let Some(provider) = unsafe { Provider::from_raw(built_in) } {
            registry.register(Candidate {
                provider,
                preferred: false,
                library: None,
            });
        }
    }
    registry.report_unknown_names();
    misspelt::report();
    Framework {
        registry,
        hooks: wanted_hooks(),
        address_format: wanted_address_format(),
    }
}

/// Returns the providers that are part of this library.
fn built_in_providers() -> [*mut fi_provider; 11] {
    [
        prov_rxm::provider(),
        prov_rxd::provider(),
        prov_tcp::provider(),
        prov_tcp::sockets::provider(),
        prov_tcp::mrail::provider(),
        prov_udp::provider(),
        prov_shm::provider(),
        prov_loopback::provider(),
        prov_coll::provider(),
        prov_lnx::provider(),
        prov_ucx::provider(),
    ]
}

/// Returns the names in `FI_HOOK`.
fn wanted_hooks() -> Vec<String> {
    params::core_text("hook")
        .unwrap_or_default()
        .split(LAYER_SEPARATOR)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the format that `FI_ADDR_FORMAT` names.
fn wanted_address_format() -> Option<u32> {
    let text = params::core_text("addr_format")?;
    let format = names::ADDRESS_FORMATS
        .iter()
        .find(|(_, name)| name.eq_ignore_ascii_case(text.trim()))
        .map(|(format, _)| *format as u32);
    if format.is_none() {
        log::error!(target: CORE, "FI_ADDR_FORMAT={text} is not an address format; ignoring it");
    }
    format.filter(|&format| format != FI_FORMAT_UNSPEC)
}
