//! Where the monitor hook's files are, and its parameters.

use std::ffi::CStr;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;
use prov_base::services;

/// A parameter: its name, type, and help text with the default.
pub type Parameter = (&'static CStr, fi_param_type, &'static str);

/// The parameters.
pub const PARAMETERS: [Parameter; 5] = [
    (
        c"linger",
        FI_PARAM_BOOL,
        "Keep the files of counters when their fabric is closed, for a sampler that reads the last \
         counters and removes the file (default: false)",
    ),
    (
        c"tick_max",
        FI_PARAM_INT,
        "The number of calls after which the hook looks whether a sampler has requested the \
         counters (default: 1024)",
    ),
    (
        c"file_mode",
        FI_PARAM_INT,
        "The permissions of the files of counters (default: 0600)",
    ),
    (
        c"dir_mode",
        FI_PARAM_INT,
        "The permissions of the folders below the base path (default: 01700)",
    ),
    (
        c"basepath",
        FI_PARAM_STRING,
        "The folder of all files of counters (default: /dev/shm/ofi)",
    ),
];

/// The values of the parameters.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) linger: bool,
    pub(super) tick_max: u64,
    pub(super) file_mode: u32,
    pub(super) dir_mode: u32,
    pub(super) basepath: PathBuf,
}

impl Settings {
    /// Returns what the user has set, or the defaults.
    pub fn get() -> Self {
        let provider = super::ENTRY.as_provider();
        let number = |name| {
            let number = services::param_int(provider, name)?;
            u32::try_from(number).ok()
        };
        Settings {
            linger: services::param_bool(provider, c"linger").unwrap_or(false),
            tick_max: number(c"tick_max").unwrap_or(1024).into(),
            file_mode: number(c"file_mode").unwrap_or(0o600),
            dir_mode: number(c"dir_mode").unwrap_or(0o1700),
            basepath: services::param_text(provider, c"basepath")
                .map_or_else(|| PathBuf::from("/dev/shm/ofi"), PathBuf::from),
        }
    }
}

/// Returns the path of a fabric's file, in folders that exist then: the base path, one of the user,
/// one of the host (containers have names of their own).
pub(super) fn path(settings: &Settings, provider: &str) -> Result<PathBuf, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let failed = |path: &Path, error: io::Error| format!("cannot use {}: {error}", path.display());
    let base = &settings.basepath;
    make_folder(base, 0o1777).map_err(|error| failed(base, error))?;
    let user = user();
    let mut folder = base.clone();
    for name in [user.to_string(), hostname()] {
        folder.push(name);
        make_folder(&folder, settings.dir_mode).map_err(|error| failed(&folder, error))?;
        let found = std::fs::symlink_metadata(&folder).map_err(|error| failed(&folder, error))?;
        if !found.is_dir() || found.uid() != user {
            // Everybody may write to the base path.
            return Err(format!("{} is not a folder of this user", folder.display()));
        }
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let parent = std::os::unix::process::parent_id();
    let process = std::process::id();
    let job = std::env::var("SLURM_JOB_ID").unwrap_or_default();
    let job: u32 = job.trim().parse().unwrap_or_default();
    let provider = provider.replace('/', "_");
    Ok(folder.join(format!("{parent}_{process}_{number}_{job}_{provider}")))
}

/// Creates a folder, unless it exists, with permissions that the process's mask does not change.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(mode & 0o7777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the user who runs the process.
fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

fn hostname() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_names_that_samplers_expect_and_each_fabric_one_of_its_own() {
        let base = std::env::temp_dir().join(format!("hook-place-{}", std::process::id()));
        let settings = Settings {
            linger: false,
            tick_max: 1024,
            file_mode: 0o600,
            dir_mode: 0o1700,
            basepath: base.clone(),
        };
        let first = path(&settings, "ofi_rxm").unwrap();
        let second = path(&settings, "ofi_rxm").unwrap();
        assert_ne!(first, second);
        let name = first.file_name().unwrap().to_str().unwrap();
        let parts: Vec<&str> = name.splitn(5, '_').collect();
        assert_eq!(parts[1], std::process::id().to_string());
        assert_eq!(parts[4], "ofi_rxm");
        let folder = first.parent().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(folder), mode(&base)), (0o1700, 0o1777));
        assert_eq!(folder.file_name().unwrap().to_str().unwrap(), hostname());
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_folder_of_the_user_that_is_a_link_is_not_used() {
        let base = std::env::temp_dir().join(format!("hook-link-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        std::os::unix::fs::symlink("/tmp", base.join(user().to_string())).unwrap();
        let settings = Settings {
            linger: false,
            tick_max: 1024,
            file_mode: 0o600,
            dir_mode: 0o1700,
            basepath: base.clone(),
        };
        assert!(path(&settings, "tcp").unwrap_err().contains("not a folder"));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
