//! Opens files that only this user may have written.
//!
//! In a directory that every user can write to, another user may have created anything under a name
//! that can be predicted: a file, a symbolic link, a FIFO. None of these is followed, waited for or
//! trusted. A path that the user has configured is followed, but the file has to be trustworthy,
//! too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::errno::{Errno, Result};

/// Opens a regular file of the effective user that no other user can write to, or creates it with
/// mode 0600.
///
/// # Errors
/// `-FI_EACCES` for any other file, and the errors of open(2).
pub fn open(path: &Path, read_only: bool, create: bool) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(!read_only)
        .create(create)
        .truncate(false)
        .mode(0o600)
        // Without O_NONBLOCK, opening a FIFO waits for its other end.
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            // Either a symbolic link, or a FIFO or device that cannot be opened with these flags.
            Some(libc::ELOOP | libc::ENXIO) => refuse(path),
            _ => Errno::from(error),
        })?;
    let found = file.metadata()?;
    let is_own = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0;
    if is_own { Ok(file) } else { Err(refuse(path)) }
}

/// The contents of a file with a secret.
pub struct Secret {
    pub bytes: Vec<u8>,
    /// Whether every user of the host can read it.
    pub is_public: bool,
}

/// Reads a file with a secret, following a symbolic link. It has to be a regular file of the
/// effective user or of root that no other user can write to.
///
/// # Errors
/// `PermissionDenied` for any other file, and the errors of open(2) and read(2).
pub fn read_secret(path: &Path) -> io::Result<Secret> {
    let mut file = OpenOptions::new()
        .read(true)
        // Without O_NONBLOCK, opening a FIFO waits for its other end.
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let found = file.metadata()?;
    let owner = found.uid();
    let is_own = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if !(found.is_file() && is_own && found.mode() & 0o022 == 0) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a regular file of this user or of root that nobody else can write to",
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Secret {
        bytes,
        is_public: found.mode() & 0o004 != 0,
    })
}

fn refuse(path: &Path) -> Errno {
    log::warn!(
        target: crate::logging::UTIL.av,
        "{} is not used: it is not a regular file of this user that nobody else can write to",
        path.display()
    );
    Errno::EACCES
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A path that is removed at the end of the test.
    struct TempPath(PathBuf);

    impl TempPath {
        fn new(of: &str) -> Self {
            let file = format!("ofi-own-file-{}-{of}", std::process::id());
            TempPath(std::env::temp_dir().join(file))
        }
    }

    impl Drop for TempPath {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_file_of_this_user_alone_is_opened() {
        let path = TempPath::new("own");
        open(&path.0, false, true).unwrap();
        open(&path.0, true, false).unwrap();
        open(&path.0, false, true).unwrap();
    }

    #[test]
    fn a_file_that_others_can_write_to_is_refused() {
        for mode in [0o620, 0o602, 0o666] {
            let path = TempPath::new("writable");
            std::fs::write(&path.0, "").unwrap();
            std::fs::set_permissions(&path.0, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(open(&path.0, true, false).err(), Some(Errno::EACCES));
            assert_eq!(open(&path.0, false, true).err(), Some(Errno::EACCES));
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let path = TempPath::new("foreign");
        std::fs::write(&path.0, "").unwrap();
        if std::os::unix::fs::chown(&path.0, Some(65534), None).is_err() {
            println!("skipped: only root can give files away");
            return;
        }
        assert_eq!(open(&path.0, true, false).err(), Some(Errno::EACCES));
    }

    #[test]
    fn a_link_and_a_fifo_are_refused_without_a_wait() {
        let target = TempPath::new("target");
        std::fs::write(&target.0, "").unwrap();
        let link = TempPath::new("link");
        std::os::unix::fs::symlink(&target.0, &link.0).unwrap();
        assert_eq!(open(&link.0, true, false).err(), Some(Errno::EACCES));
        let fifo = TempPath::new("fifo");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo.0, kind, 0o600.into(), 0).unwrap();
        assert_eq!(open(&fifo.0, true, false).err(), Some(Errno::EACCES));
        assert_eq!(open(&fifo.0, false, true).err(), Some(Errno::EACCES));
    }

    fn denied(path: &TempPath) -> bool {
        let error = read_secret(&path.0).err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn a_secret_is_read_from_a_file_of_this_user_or_where_a_link_leads_to_one() {
        let path = TempPath::new("secret");
        std::fs::write(&path.0, "secret").unwrap();
        for (mode, is_public) in [
            (0o400, false),
            (0o600, false),
            (0o640, false),
            (0o644, true),
        ] {
            std::fs::set_permissions(&path.0, PermissionsExt::from_mode(mode)).unwrap();
            let secret = read_secret(&path.0).unwrap();
            assert_eq!(
                (&secret.bytes[..], secret.is_public),
                (&b"secret"[..], is_public)
            );
        }
        let link = TempPath::new("secret-link");
        std::os::unix::fs::symlink(&path.0, &link.0).unwrap();
        assert_eq!(read_secret(&link.0).unwrap().bytes, b"secret");
    }

    #[test]
    fn a_secret_that_others_may_have_written_is_refused() {
        let path = TempPath::new("secret-foreign");
        std::fs::write(&path.0, "secret").unwrap();
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&path.0, PermissionsExt::from_mode(mode)).unwrap();
            assert!(denied(&path));
        }
        std::fs::set_permissions(&path.0, PermissionsExt::from_mode(0o600)).unwrap();
        if std::os::unix::fs::chown(&path.0, Some(65534), None).is_ok() {
            assert!(denied(&path));
        } else {
            println!("in part: only root can give files away");
        }
    }

    #[test]
    fn a_secret_is_not_awaited_from_a_fifo_or_device() {
        let fifo = TempPath::new("secret-fifo");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo.0, kind, 0o600.into(), 0).unwrap();
        assert!(denied(&fifo));
        assert!(read_secret(Path::new("/dev/zero")).is_err());
    }
}
