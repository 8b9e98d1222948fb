//! Orders the results of fi_getinfo(3) by the distance between their device and another one, such
//! as a GPU (`FI_VERBS_AFFINITY_DEVICE`, fi_verbs(7)).

use std::cmp::Reverse;
use std::fs::{self, read_to_string};
use std::path::{Path, PathBuf};

use prov_util::attr::{Info, PciAddress};

use crate::LOG;
use crate::params::Params;

/// Sorts the entries that are nearest to the device named by the user first. Entries at the same
/// distance keep their order, as do all entries if no device is named.
pub fn order(infos: &mut [Info], params: &Params) {
    let (Some(policy), Some(device)) = (&params.nic_affinity_policy, &params.affinity_device)
    else {
        return;
    };
    let Some(address) = PciAddress::parse(device) else {
        log::warn!(target: LOG.core, "affinity_device: {device} is no PCI address");
        return;
    };
    match policy.as_str() {
        "none" => {}
        "auto" => {
            let system = System(Path::new("/sys"));
            infos.sort_by_cached_key(|info| system.distance(address, pci_of(info)));
        }
        "manual" => match listed(params.nic_affinity_config.as_deref(), address) {
            Ok(Some(name)) => infos.sort_by_key(|info| name_of(info) != Some(&name)),
            Ok(None) => log::warn!(target: LOG.core, "nic_affinity_config: nothing for {device}"),
            Err(error) => log::warn!(target: LOG.core, "nic_affinity_config: {error}"),
        },
        other => log::warn!(target: LOG.core, "nic_affinity_policy: {other} is unknown"),
    }
}

fn pci_of(info: &Info) -> Option<PciAddress> {
    info.nic.as_ref()?.pci
}

fn name_of(info: &Info) -> Option<&String> {
    info.nic.as_ref()?.device.name.as_ref()
}

/// Returns the device that a file lists for an address; its lines are an address and a name.
fn listed(file: Option<&str>, address: PciAddress) -> Result<Option<String>, String> {
    let file = file.ok_or("not set")?;
    let text = read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let mut found = None;
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            (Some(of), Some(name)) if PciAddress::parse(of).is_some() => {
                if PciAddress::parse(of) == Some(address) {
                    found.get_or_insert_with(|| name.to_owned());
                }
            }
            _ => log::warn!(target: LOG.core, "{file}: not an address and a device: {line}"),
        }
    }
    Ok(found)
}

/// The distance between two devices, the shortest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Distance {
    /// Below a common bridge, which has this many bridges above it: the deepest is nearest.
    Bridge(Reverse<usize>),
    /// At the same processor.
    Package,
    Machine,
    /// The distance is not known.
    Unknown,
}

/// The kernel's information on devices, in sysfs(5).
struct System<'a>(&'a Path);

impl System<'_> {
    fn distance(&self, from: PciAddress, to: Option<PciAddress>) -> Distance {
        let place = |address| self.place(address);
        let (Some(from), Some(to)) = (place(from), to.and_then(place)) else {
            return Distance::Unknown;
        };
        let devices = self.devices();
        let way = |place: &Path| place.strip_prefix(&devices).map(Path::to_owned).ok();
        let (Some(a), Some(b)) = (way(&from), way(&to)) else {
            return Distance::Unknown;
        };
        let shared = a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count();
        if shared > 0 {
            return Distance::Bridge(Reverse(shared));
        }
        match (self.package(&from), self.package(&to)) {
            (Some(a), Some(b)) if a == b => Distance::Package,
            _ => Distance::Machine,
        }
    }

    /// Returns the directory of the devices, without symbolic links in its path.
    fn devices(&self) -> PathBuf {
        let devices = self.0.join("devices");
        fs::canonicalize(&devices).unwrap_or(devices)
    }

    /// Returns the position of a device below its bridges.
    fn place(&self, address: PciAddress) -> Option<PathBuf> {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = address;
        let name = format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}");
        fs::canonicalize(self.0.join("bus/pci/devices").join(name)).ok()
    }

    /// Returns the processor package to which a device is attached: that of the first processor
    /// that is near it.
    fn package(&self, device: &Path) -> Option<String> {
        let near = read_to_string(device.join("local_cpulist")).ok()?;
        let first = near.trim().split([',', '-']).next()?;
        let id = format!("devices/system/cpu/cpu{first}/topology/physical_package_id");
        read_to_string(self.0.join(id)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use prov_base::random;
    use prov_util::attr::{Nic, NicDevice};

    use super::*;

    /// A directory that is removed when the value is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("affinity-{:x}", random::number());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn file(&self, at: &str, text: &str) {
            let path = self.0.join(at);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Adds a device below bridges, at a processor.
        fn device(&self, behind: &str, address: &str, processor: usize) {
            let place = format!("devices/{behind}/{address}");
            self.file(
                &format!("{place}/local_cpulist"),
                &format!("{processor}-{processor}\n"),
            );
            let listed = self.0.join("bus/pci/devices");
            fs::create_dir_all(&listed).unwrap();
            symlink(self.0.join(place), listed.join(address)).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn info(name: &str, pci: &str) -> Info {
        Info {
            nic: Some(Nic {
                device: NicDevice {
                    name: Some(name.to_owned()),
                    ..NicDevice::default()
                },
                pci: PciAddress::parse(pci),
                ..Nic::default()
            }),
            ..Info::default()
        }
    }

    fn names(infos: &[Info]) -> Vec<&str> {
        infos
            .iter()
            .map(|info| name_of(info).unwrap().as_str())
            .collect()
    }

    #[test]
    fn devices_under_the_same_bridge_are_nearest() {
        let folder = Folder::new();
        for (number, package) in [(0, "0\n"), (1, "0\n"), (9, "1\n")] {
            let at = format!("devices/system/cpu/cpu{number}/topology/physical_package_id");
            folder.file(&at, package);
        }
        let bridge = "pci0000:00/0000:00:01.0";
        folder.device(bridge, "0000:01:00.0", 0);
        folder.device(bridge, "0000:01:00.1", 0);
        folder.device("pci0000:00/0000:00:02.0", "0000:02:00.0", 0);
        folder.device("pci0000:40", "0000:41:00.0", 1);
        folder.device("pci0000:80", "0000:81:00.0", 9);
        let system = System(&folder.0);
        let gpu = PciAddress::parse("0000:01:00.0").unwrap();
        let mut infos: Vec<Info> = [
            ("gone", "0000:ff:00.0"),
            ("other package", "0000:81:00.0"),
            ("package", "0000:41:00.0"),
            ("root", "0000:02:00.0"),
            ("bridge", "0000:01:00.1"),
        ]
        .map(|(name, pci)| info(name, pci))
        .into();
        infos.sort_by_cached_key(|info| system.distance(gpu, pci_of(info)));
        assert_eq!(
            names(&infos),
            ["bridge", "root", "package", "other package", "gone"]
        );
    }

    #[test]
    fn a_list_names_the_first_device() {
        let folder = Folder::new();
        let list =
            "# near\n\nnonsense\n0000:3b:00.0 mlx5_1\n0000:3b:00.0 mlx5_0\n0000:af:00.0 mlx5_0\n";
        folder.file("list", list);
        let params = |device: &str, policy: &str| Params {
            nic_affinity_policy: Some(policy.to_owned()),
            affinity_device: Some(device.to_owned()),
            nic_affinity_config: Some(folder.0.join("list").to_str().unwrap().to_owned()),
            ..Params::default()
        };
        let ordered = |params| {
            let mut infos = ["mlx5_0", "mlx5_1"].map(|name| info(name, "0000:01:00.0"));
            order(&mut infos, &params);
            names(&infos).join(" ")
        };
        assert_eq!(ordered(params("0000:3b:00.0", "manual")), "mlx5_1 mlx5_0");
        assert_eq!(ordered(params("0000:af:00.0", "manual")), "mlx5_0 mlx5_1");
        assert_eq!(ordered(params("0000:3b:00.1", "manual")), "mlx5_0 mlx5_1");
        assert_eq!(ordered(params("0000:3b:00.0", "none")), "mlx5_0 mlx5_1");
        assert_eq!(ordered(params("far away", "manual")), "mlx5_0 mlx5_1");
    }
}
