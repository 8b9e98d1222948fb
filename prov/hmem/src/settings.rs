//! The parameters of device memory (fi_mr(3)), which the framework defines.

use prov_base::services;

/// What users set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `FI_HMEM`: the interfaces to look for, by their names; all, if it is not set.
    interfaces: Option<Vec<String>>,
    /// `FI_HMEM_CUDA_ENABLE_XFER`: whether data is copied with the CUDA driver. Without that, its
    /// memory cannot be used.
    pub cuda_enable_xfer: bool,
    /// `FI_HMEM_CUDA_USE_GDRCOPY`: whether short pieces of CUDA memory are copied through GDRCopy.
    pub cuda_use_gdrcopy: bool,
    /// `FI_HMEM_ZE_COPY_ENGINE`: the group of engines of Level Zero devices that copies, and the engine's
    /// index in it.
    pub ze_copy_engine: (u32, u32),
}

impl Settings {
    /// Reads them.
    pub fn load() -> Self {
        Settings {
            interfaces: services::core_text(c"hmem").map(|text| names(&text)),
            cuda_enable_xfer: services::core_bool(c"hmem_cuda_enable_xfer").unwrap_or(true),
            cuda_use_gdrcopy: services::core_bool(c"hmem_cuda_use_gdrcopy").unwrap_or(true),
            ze_copy_engine: services::core_text(c"hmem_ze_copy_engine")
                .and_then(|text| engine(&text))
                .unwrap_or_default(),
        }
    }

    /// Whether an interface is to be looked for.
    pub fn wants(&self, name: &str) -> bool {
        let named = self.interfaces.as_ref();
        named.is_none_or(|names| names.iter().any(|wanted| wanted == name))
    }
}

/// Returns the names in a list, which commas, semicolons or spaces separate.
fn names(list: &str) -> Vec<String> {
    let names = list.split([',', ';', ' ']).map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_ascii_lowercase).collect()
}

/// Returns a group, and an index if there is one behind a dot; `None` for what is neither.
fn engine(text: &str) -> Option<(u32, u32)> {
    let (group, index) = text.split_once('.').unwrap_or((text, "0"));
    Some((group.trim().parse().ok()?, index.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_the_interfaces_that_are_looked_for() {
        let wants = |list: Option<&str>| {
            let settings = Settings {
                interfaces: list.map(names),
                cuda_enable_xfer: true,
                cuda_use_gdrcopy: true,
                ze_copy_engine: (0, 0),
            };
            ["cuda", "rocr"].map(|name| settings.wants(name))
        };
        assert_eq!(wants(None), [true, true]);
        assert_eq!(wants(Some("ze, CUDA")), [true, false]);
        assert_eq!(wants(Some("system")), [false, false]);
    }

    #[test]
    fn an_engine_is_a_group_and_an_index() {
        let engines = ["1", "2.3", "", "a.b", "1."].map(engine);
        assert_eq!(engines, [Some((1, 0)), Some((2, 3)), None, None, None]);
    }
}
