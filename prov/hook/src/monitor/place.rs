//! Where the monitor hook's files are, and its parameters.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;
use prov_base::services;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

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

/// Where the file of one fabric is: its name in an open folder, so that nobody who replaces a part of
/// the path leads the file elsewhere.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    name: String,
    /// For messages.
    path: PathBuf,
}

impl Place {
    /// Returns the place of a fabric's file, in folders that exist then: the base path, one of the
    /// user, one of the host (containers have names of their own).
    ///
    /// # Errors
    /// The reason why there is none, for the log.
    pub(super) fn of(settings: &Settings, provider: &str) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let failed = |path: &Path, error| format!("cannot use {}: {error}", path.display());
        let mut path = settings.basepath.clone();
        let base = folder(CWD, &path, 0o1777, OFlags::empty());
        let mut folder_of = base.map_err(|error| failed(&path, error))?;
        let user = user();
        for name in [user.to_string(), hostname()] {
            path.push(&name);
            let opened = folder(
                folder_of.as_fd(),
                Path::new(&name),
                settings.dir_mode,
                OFlags::NOFOLLOW,
            );
            folder_of = opened.map_err(|error| failed(&path, error))?;
            let found = fstat(&folder_of).map_err(|error| failed(&path, error))?;
            // Everybody may write to the base path. A link is opened as what it is (`O_PATH`).
            let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            if !is_folder || found.st_uid != user {
                return Err(format!("{} is not a folder of this user", path.display()));
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        let parent = std::os::unix::process::parent_id();
        let process = std::process::id();
        let job = std::env::var("SLURM_JOB_ID").unwrap_or_default();
        let job: u32 = job.trim().parse().unwrap_or_default();
        let provider = provider.replace('/', "_");
        let name = format!("{parent}_{process}_{number}_{job}_{provider}");
        Ok(Place {
            folder: folder_of,
            path: path.join(&name),
            name,
        })
    }

    /// Creates the file, which only this user can read and write. One that is there already is of a
    /// process that has ended.
    ///
    /// # Errors
    /// Those of unlink(2) and open(2).
    pub(super) fn create(&self) -> io::Result<File> {
        match self.remove() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.folder, &self.name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub(super) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

impl fmt::Display for Place {
    /// The path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Opens a folder. If it does not exist, it is created with permissions that the process's mask does
/// not change.
fn folder(
    at: BorrowedFd<'_>,
    path: &Path,
    mode: u32,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    match mkdirat(at, path, Mode::RWXU) {
        Ok(()) => {
            let made = openat(
                at,
                path,
                flags | OFlags::RDONLY | OFlags::DIRECTORY,
                Mode::empty(),
            )?;
            fchmod(&made, Mode::from_raw_mode(mode & 0o7777))?;
            Ok(made)
        }
        // Its permissions may not include that of reading it.
        Err(Errno::EXIST) => openat(at, path, flags | OFlags::PATH, Mode::empty()),
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
pub(super) mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A base path that is removed at the end of the test, with the settings that have it.
    pub struct Base(pub PathBuf);

    impl Base {
        pub fn new(name: &str) -> Self {
            let name = format!("hook-{name}-{}", std::process::id());
            Base(std::env::temp_dir().join(name))
        }

        pub fn settings(&self) -> Settings {
            Settings {
                linger: false,
                tick_max: 1024,
                file_mode: 0o600,
                dir_mode: 0o1700,
                basepath: self.0.clone(),
            }
        }

        pub fn place(&self) -> Place {
            Place::of(&self.settings(), "tcp").unwrap()
        }
    }

    impl Drop for Base {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    impl Place {
        pub fn path(&self) -> &Path {
            &self.path
        }
    }

    #[test]
    fn files_have_the_names_that_samplers_expect_and_each_fabric_one_of_its_own() {
        let base = Base::new("names");
        let first = Place::of(&base.settings(), "ofi_rxm").unwrap();
        let second = Place::of(&base.settings(), "ofi_rxm").unwrap();
        assert_ne!(first.path, second.path);
        let name = first.path.file_name().unwrap().to_str().unwrap();
        let parts: Vec<&str> = name.splitn(5, '_').collect();
        assert_eq!(parts[1], std::process::id().to_string());
        assert_eq!(parts[4], "ofi_rxm");
        let folder = first.path.parent().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(folder), mode(&base.0)), (0o1700, 0o1777));
        assert_eq!(folder.file_name().unwrap().to_str().unwrap(), hostname());
    }

    #[test]
    fn a_folder_of_the_user_that_is_a_link_is_not_used() {
        let base = Base::new("link");
        std::fs::create_dir_all(&base.0).unwrap();
        symlink("/tmp", base.0.join(user().to_string())).unwrap();
        let refused = Place::of(&base.settings(), "tcp").unwrap_err();
        assert!(refused.contains("not a folder"), "{refused}");
    }

    /// The owner of the base path can replace what is in it at any time.
    #[test]
    fn a_link_in_place_of_a_folder_that_was_checked_does_not_lead_the_file_elsewhere() {
        let base = Base::new("replaced");
        let elsewhere = base.0.join("elsewhere");
        std::fs::create_dir_all(elsewhere.join(hostname())).unwrap();
        let place = base.place();
        let own = base.0.join(user().to_string());
        std::fs::rename(&own, base.0.join("moved")).unwrap();
        symlink(&elsewhere, &own).unwrap();
        drop(place.create().unwrap());
        let count = |folder: &Path| std::fs::read_dir(folder.join(hostname())).unwrap().count();
        assert_eq!((count(&elsewhere), count(&base.0.join("moved"))), (0, 1));
        place.remove().unwrap();
        assert_eq!(count(&base.0.join("moved")), 0);
    }
}
