//! The memory that this process may use: that of the machine, or the limit of its control groups
//! (cgroups(7)).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Returns half of the memory that this process may use, in bytes: of the least of the machine's
/// memory and the limits of the process's control groups, as of the first call.
pub fn half_of_memory() -> usize {
    static HALF: OnceLock<usize> = OnceLock::new();
    *HALF.get_or_init(|| {
        // Miri has no sysinfo(2), nor the files of /proc: half of a small machine.
        if cfg!(miri) {
            return 2 << 30;
        }
        let limit = limit_under(Path::new("/")).map_or(u128::MAX, u128::from);
        let system = rustix::system::sysinfo();
        let machine = u128::from(system.totalram) * u128::from(system.mem_unit.max(1));
        usize::try_from(machine.min(limit) / 2).unwrap_or(usize::MAX)
    })
}

/// Returns the least limit of this process's control groups, as the files under `root` name them;
/// `None` if none can be read.
fn limit_under(root: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read(root.join(name)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mounts: Vec<Mount> = lines(&mounts).filter_map(Mount::read).collect();
    let groups = lines(&groups).filter_map(Group::read);
    let limits = groups.filter_map(|group| {
        let of_hierarchy = mounts
            .iter()
            .filter(|mount| mount.hierarchy == group.hierarchy);
        of_hierarchy
            .filter_map(|mount| least_limit(root, mount, &group))
            .min()
    });
    limits.min()
}

/// The version of a hierarchy of control groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1, with the memory controller.
    Memory,
    /// Version 2.
    Unified,
}

impl Hierarchy {
    /// The file with the limit of a group.
    fn limit_file(self) -> &'static str {
        match self {
            Hierarchy::Memory => "memory.limit_in_bytes",
            Hierarchy::Unified => "memory.max",
        }
    }
}

/// A control group of this process.
struct Group<'a> {
    hierarchy: Hierarchy,
    path: &'a Path,
}

impl<'a> Group<'a> {
    /// Reads a line of `/proc/self/cgroup`: number, controllers and path.
    fn read(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let hierarchy = match (number, controllers) {
            (b"0", b"") => Hierarchy::Unified,
            (_, controllers) if has_memory(controllers) => Hierarchy::Memory,
            _ => return None,
        };
        let path = Path::new(OsStr::from_bytes(path));
        Some(Group { hierarchy, path })
    }
}

/// Where a hierarchy is mounted.
struct Mount {
    hierarchy: Hierarchy,
    /// The group that is found at `point`.
    group: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Reads a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
    fn read(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let (group, point) = (fields.nth(3)?, fields.next()?);
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, _, options) = (fields.next()?, fields.next()?, fields.next()?);
        let hierarchy = match kind {
            b"cgroup2" => Hierarchy::Unified,
            b"cgroup" if has_memory(options) => Hierarchy::Memory,
            _ => return None,
        };
        Some(Mount {
            hierarchy,
            group: unescaped(group),
            point: unescaped(point),
        })
    }
}

/// Returns the least limit of a group and of its ancestors, as far as they are visible.
fn least_limit(root: &Path, mount: &Mount, group: &Group<'_>) -> Option<u64> {
    let point = root.join(mount.point.strip_prefix("/").ok()?);
    // A group outside of the mounted part, as in some containers: the topmost visible group is an
    // ancestor of it, or is the group itself under another name.
    let inner = group.path.strip_prefix(&mount.group).ok();
    let inner = inner.filter(|path| {
        let mut components = path.components();
        components.all(|component| matches!(component, Component::Normal(_)))
    });
    let groups = inner.unwrap_or(Path::new("")).ancestors();
    let limits = groups.filter_map(|group| {
        let file = point.join(group).join(mount.hierarchy.limit_file());
        let text = std::fs::read_to_string(file).ok()?;
        // "max" is no limit.
        text.trim().parse::<u64>().ok()
    });
    limits.min()
}

fn has_memory(controllers: &[u8]) -> bool {
    controllers
        .split(|&byte| byte == b',')
        .any(|name| name == b"memory")
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Decodes a path of mountinfo, in which blanks and backslashes are written as three octal digits
/// behind a backslash.
fn unescaped(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory tree that looks like a system's.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let name = format!("memory_limit-{:x}", crate::random::number());
            let tree = Tree(std::env::temp_dir().join(name));
            for (path, text) in files {
                let path = tree.0.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            tree
        }

        fn limit(&self) -> Option<u64> {
            limit_under(&self.0)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_least_limit_up_the_hierarchy_counts() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "0::/slice/unit/inner\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/slice/memory.max", "4096000\n"),
            ("sys/fs/cgroup/slice/unit/memory.max", "1048576\n"),
            ("sys/fs/cgroup/slice/unit/inner/memory.max", "max\n"),
            ("sys/fs/cgroup/slice/other/memory.max", "1\n"),
        ]);
        assert_eq!(tree.limit(), Some(1_048_576));
    }

    #[test]
    fn the_memory_controller_of_version_1_counts() {
        let tree = Tree::new(&[
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/x\n4:memory:/job/a\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 35 31 0:32 / /sys/fs/cgroup/memory rw shared:4 - cgroup cgroup rw,memory\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "1\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                "3000000\n",
            ),
            (
                "sys/fs/cgroup/memory/job/a/memory.limit_in_bytes",
                "5000000\n",
            ),
        ]);
        assert_eq!(tree.limit(), Some(3_000_000));
    }

    #[test]
    fn a_container_sees_its_own_group_where_the_hierarchy_is_mounted() {
        for group in ["/docker/abc", "/", "/../outside", "/elsewhere"] {
            let cgroup = format!("0::{group}\n");
            let tree = Tree::new(&[
                ("proc/self/cgroup", &cgroup),
                (
                    "proc/self/mountinfo",
                    "30 23 0:26 /docker/abc /sys/fs/c\\040group ro - cgroup2 cgroup rw\n",
                ),
                ("sys/fs/c group/memory.max", "70000\n"),
            ]);
            assert_eq!(tree.limit(), Some(70_000), "{group}");
        }
    }

    #[test]
    fn nothing_and_nonsense_are_no_limit() {
        assert_eq!(Tree::new(&[]).limit(), None);
        let unlimited = Tree::new(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
        ]);
        assert_eq!(unlimited.limit(), None);
        for text in ["", "-1\n", "lots", "99999999999999999999999\n"] {
            let tree = Tree::new(&[
                ("proc/self/cgroup", "\n::\n0::\nx:memory\n0::/a\n"),
                ("proc/self/mountinfo", &format!("- - -\n1 2\n\\\n{UNIFIED}")),
                ("sys/fs/cgroup/a/memory.max", text),
            ]);
            assert_eq!(tree.limit(), None, "{text:?}");
        }
    }

    #[test]
    fn this_process_may_use_some_memory() {
        assert!(half_of_memory() > 1 << 20);
        assert_eq!(half_of_memory(), half_of_memory());
    }
}
