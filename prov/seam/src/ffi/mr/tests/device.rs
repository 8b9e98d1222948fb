//! Tests domains whose device registers memory.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::*;
use prov_objects::mr::{Device, NO_KEY, Registrar, Registration};

/// Length of its raw keys in bytes.
const RAW_KEY: usize = 12;

/// A device that records its calls.
#[derive(Debug, Default)]
struct Nic {
    state: Arc<State>,
    /// Whether it accesses memory of other devices.
    reaches_devices: bool,
}

#[derive(Debug, Default)]
struct State {
    diary: Mutex<Vec<String>>,
    registered: AtomicUsize,
    /// The error of the next call.
    refusal: Mutex<Option<Errno>>,
}

impl State {
    fn note(&self, what: impl Into<String>) -> Result {
        if let Some(refusal) = self.refusal.lock().unwrap().take() {
            return Err(refusal);
        }
        self.diary.lock().unwrap().push(what.into());
        Ok(())
    }

    fn diary(&self) -> Vec<String> {
        std::mem::take(&mut self.diary.lock().unwrap())
    }

    fn refuse_next(&self, error: Errno) {
        *self.refusal.lock().unwrap() = Some(error);
    }
}

struct Registered {
    state: Arc<State>,
    number: usize,
    key: u64,
}

impl Device for Nic {
    fn reaches(&self, kind: &MemoryKind) -> bool {
        self.reaches_devices && kind.interface != Interface::Neuron(0)
    }

    fn register(&self, request: &Request) -> Result<Box<dyn Registration>> {
        let part_of = request.part_of.as_ref().map(|region| region.desc());
        self.state.note(format!(
            "{} bytes at {:?}, part of {part_of:?}",
            request.memory.len(),
            request.kind
        ))?;
        let number = self.state.registered.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Box::new(Registered {
            state: self.state.clone(),
            number,
            key: match request.access & REMOTE {
                0 => NO_KEY,
                _ => request.key + 1000,
            },
        }))
    }

    fn map_raw(&self, base: u64, raw: &[u8]) -> Result<u64> {
        let &[.., key] = raw else {
            return Err(Errno::EINVAL);
        };
        if raw.len() != RAW_KEY {
            return Err(Errno::EINVAL);
        }
        self.state.note(format!("map at {base}"))?;
        Ok(u64::from(key))
    }

    fn unmap(&self, key: u64) -> Result {
        self.state.note(format!("unmap {key}"))
    }
}

impl Registration for Registered {
    fn desc(&self) -> usize {
        self.number
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn raw_key(&self) -> Vec<u8> {
        vec![self.number as u8; RAW_KEY]
    }

    fn bind(&self, _endpoint: AnyFid<'_>) -> Result {
        self.state.note(format!("bind {}", self.number))
    }

    fn enable(&self) -> Result {
        self.state.note(format!("enable {}", self.number))
    }

    fn refresh(&self, parts: &[Memory]) -> Result {
        let lens: Vec<usize> = parts.iter().map(Memory::len).collect();
        self.state.note(format!("refresh {lens:?}"))
    }

    fn close(&self) -> Result {
        self.state.note(format!("close {}", self.number))
    }
}

/// A domain with a device and these attributes.
fn domain(
    mr_mode: i32,
    reaches_devices: bool,
    registrar: fn(Arc<dyn Device>) -> Registrar,
) -> (Handle<TestDomain>, Arc<State>) {
    let state = Arc::<State>::default();
    let device = Arc::new(Nic {
        state: state.clone(),
        reaches_devices,
    });
    let domain = TestDomain::registering(FI_SOCKADDR_IB, mr_mode, registrar(device));
    (domain, state)
}

fn desc_and_key(mr: *mut fid_mr) -> (usize, u64) {
    // SAFETY: the region is open as long as the test uses it.
    unsafe { ((*mr).mem_desc.addr(), (*mr).key) }
}

#[test]
fn each_call_registers_with_the_device_and_gives_its_descriptor_and_key() {
    let (domain, state) = domain(FI_MR_PROV_KEY | FI_MR_LOCAL, false, Registrar::Device);
    let mut memory = [0; 16];
    let mut mrs = vec![register(&domain, &mut memory, REMOTE, 7, 0).unwrap()];
    let vector = [iov(&mut memory[..4]), iov(&mut memory[8..])];
    let mut mr = null_mut();
    // SAFETY: the domain is open, and the memory outlives the region.
    let status = unsafe {
        let (iov, context) = (vector.as_ptr(), null_mut());
        ops(&domain).regv.unwrap()(domain.fid(), iov, 2, FI_SEND, 0, 8, 0, &mut mr, context)
    };
    assert_eq!(status, 0);
    mrs.push(mr);
    mrs.push(regattr(&domain, &attr(&iov(&mut memory[..8])), 0).unwrap());
    let found: Vec<_> = mrs.iter().map(|&mr| desc_and_key(mr)).collect();
    assert_eq!(found, [(1, 1007), (2, NO_KEY), (3, 1008)]);
    let kind = MemoryKind::SYSTEM;
    let expected = [16, 12, 8].map(|len| format!("{len} bytes at {kind:?}, part of None"));
    assert_eq!(state.diary(), expected);
    // The software does not give access to any of them.
    for key in [7, 1007, 1008] {
        let mut accessor = domain.table.accessor();
        let granted = accessor.resolve(key, 0, 1, FI_REMOTE_READ, Job::NONE);
        assert_eq!(granted.err(), Some(Errno::EACCES));
    }
    for mr in mrs {
        assert_eq!(close(domain.fid()), Errno::EBUSY.to_c());
        assert_eq!(close(mr.cast()), 0);
    }
    assert_eq!(state.diary(), ["close 1", "close 2", "close 3"]);
}

#[test]
fn memory_can_be_registered_with_the_device_and_the_software() {
    let (domain, state) = domain(0, true, Registrar::Both);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    assert_eq!(desc_and_key(mr), (1, 1007));
    let mut accessor = domain.table.accessor();
    let mut resolve = |key| accessor.resolve(key, 0, 16, REMOTE, Job::NONE);
    let granted = resolve(1007).unwrap();
    assert!(resolve(7).is_err());
    // The device would accept the key, but it is in use in the software.
    state.diary();
    let again = register(&domain, &mut memory, REMOTE, 7, 0);
    assert_eq!(again.err(), Some(Errno::ENOKEY.to_c()));
    assert_eq!(state.diary().last().unwrap(), "close 2");

    // A region that the device refuses to release stays open.
    state.refuse_next(Errno::EBUSY);
    assert_eq!(close(mr.cast()), Errno::EBUSY.to_c());
    assert!(resolve(1007).is_ok());
    assert_eq!(close(mr.cast()), 0);
    assert!(resolve(1007).is_err());
    assert!(accessor.hold(&granted).is_none());
    assert_eq!(state.diary(), ["close 1"]);

    // The software cannot serve memory that it cannot access.
    let vector = iov(&mut memory);
    let elsewhere = fi_mr_attr {
        iface: FI_HMEM_CUDA,
        ..attr(&vector)
    };
    let mr = regattr(&domain, &elsewhere, 0).unwrap();
    assert_eq!(desc_and_key(mr).1, 1008);
    assert!(accessor.resolve(1008, 0, 16, REMOTE, Job::NONE).is_err());
    assert_eq!(close(mr.cast()), 0);
}

#[test]
fn memory_that_the_device_refuses_is_not_registered() {
    let (domain, state) = domain(0, false, Registrar::Both);
    let mut memory = [0; 16];
    state.refuse_next(Errno::ENOMEM);
    let refused = register(&domain, &mut memory, REMOTE, 7, 0);
    assert_eq!(refused.err(), Some(Errno::ENOMEM.to_c()));
    // SAFETY: the domain is open as long as the test uses it.
    let nowhere = unsafe {
        let (buf, mr) = (memory.as_ptr().cast(), null_mut());
        ops(&domain).reg.unwrap()(domain.fid(), buf, 16, REMOTE, 0, 7, 0, mr, null_mut())
    };
    assert_eq!(nowhere, Errno::EINVAL.to_c());
    assert_eq!(state.diary(), [""; 0]);
    assert_eq!(close(domain.into_c().cast()), 0);
}

#[test]
fn memory_of_devices_has_its_place() {
    let (domain, state) = domain(FI_MR_HMEM, true, Registrar::Device);
    let mut memory = [0; 16];
    let vector = iov(&mut memory);
    let device = |iface, number| fi_mr_attr {
        iface,
        device: fi_mr_attr_device { cuda: number },
        ..attr(&vector)
    };
    for (iface, flags, interface, allocation) in [
        (FI_HMEM_CUDA, 0, Interface::Cuda(3), Allocation::Any),
        (
            FI_HMEM_ZE,
            FI_HMEM_DEVICE_ONLY,
            Interface::Ze(3),
            Allocation::Device,
        ),
        (
            FI_HMEM_ROCR,
            FI_HMEM_HOST_ALLOC,
            Interface::Rocr(3),
            Allocation::Host,
        ),
        (
            FI_HMEM_SYNAPSEAI,
            0,
            Interface::Synapseai(3),
            Allocation::Any,
        ),
        // Contradicting flags mean unspecified access.
        (
            FI_HMEM_CUDA,
            FI_HMEM_DEVICE_ONLY | FI_HMEM_HOST_ALLOC,
            Interface::Cuda(3),
            Allocation::Any,
        ),
    ] {
        let mr = regattr(&domain, &device(iface, 3), flags).unwrap();
        let kind = MemoryKind {
            interface,
            allocation,
            dmabuf: None,
        };
        let expected = format!("16 bytes at {kind:?}, part of None");
        assert_eq!(state.diary(), [expected]);
        assert_eq!(close(mr.cast()), 0);
        state.diary();
    }
    for (attr, flags, error) in [
        (device(FI_HMEM_NEURON, 0), 0, Errno::ENOSYS),
        (device(999, 0), 0, Errno::ENOSYS),
    ] {
        let refused = regattr(&domain, &attr, flags);
        assert_eq!(refused.err(), Some(error.to_c()));
    }
    assert_eq!(state.diary(), [""; 0]);
}

#[test]
fn a_file_stands_for_memory() {
    let (domain, state) = domain(FI_MR_VIRT_ADDR, true, Registrar::Device);
    let file = fi_mr_dmabuf {
        fd: 42,
        offset: 0x100,
        len: 0x80,
        base_addr: std::ptr::without_provenance_mut(0x7000),
    };
    let unused = iovec {
        iov_base: null_mut(),
        iov_len: 0,
    };
    let with_file = fi_mr_attr {
        mr_iov: std::ptr::from_ref(&file).cast(),
        iface: FI_HMEM_CUDA,
        ..attr(&unused)
    };
    let mr = regattr(&domain, &with_file, FI_MR_DMABUF).unwrap();
    let kind = MemoryKind {
        interface: Interface::Cuda(0),
        allocation: Allocation::Any,
        dmabuf: Some(Dmabuf {
            fd: 42,
            offset: 0x100,
            base: 0x7000,
        }),
    };
    let expected = format!("128 bytes at {kind:?}, part of None");
    assert_eq!(state.diary(), [expected]);
    let (mut base, mut raw, mut size) = (0, [0u8; RAW_KEY], RAW_KEY);
    let mut raw_attr = fi_mr_raw_attr {
        flags: 0,
        base_addr: &mut base,
        raw_key: raw.as_mut_ptr(),
        key_size: &mut size,
    };
    assert_eq!(control(mr, FI_GET_RAW_MR, &mut raw_attr), 0);
    assert_eq!(base, 0x7100);

    let part = fi_mr_attr {
        base_mr: mr,
        ..with_file
    };
    let two = fi_mr_attr {
        iov_count: 2,
        ..with_file
    };
    let none = fi_mr_attr {
        mr_iov: std::ptr::null(),
        ..with_file
    };
    let end = fi_mr_dmabuf {
        offset: u64::MAX,
        ..file
    };
    let beyond = fi_mr_attr {
        mr_iov: std::ptr::from_ref(&end).cast(),
        ..with_file
    };
    for wrong in [part, two, none, beyond] {
        let refused = regattr(&domain, &wrong, FI_MR_DMABUF);
        assert_eq!(refused.err(), Some(Errno::EINVAL.to_c()));
    }

    // A part is identified by its address, and has the same kind of memory.
    let inner = iovec {
        iov_base: std::ptr::without_provenance_mut(0x7140),
        iov_len: 8,
    };
    let part = fi_mr_attr {
        base_mr: mr,
        iface: FI_HMEM_NEURON,
        ..attr(&inner)
    };
    let part = regattr(&domain, &part, 0).unwrap();
    let expected = format!("8 bytes at {kind:?}, part of Some(1)");
    assert_eq!(state.diary(), [expected]);
    assert_eq!(close(mr.cast()), Errno::EBUSY.to_c());
    assert_eq!(close(part.cast()), 0);
    assert_eq!(close(mr.cast()), 0);
}

#[test]
fn a_domain_that_reaches_no_devices_refuses_their_memory() {
    let (with_device, _) = domain(0, false, Registrar::Both);
    let software = TestDomain::open(FI_SOCKADDR_IN, 0);
    for domain in [with_device, software] {
        let mut memory = [0; 16];
        let vector = iov(&mut memory);
        let device = fi_mr_attr {
            iface: FI_HMEM_CUDA,
            ..attr(&vector)
        };
        for (attr, flags, error) in [
            (&device, 0, Errno::ENOSYS),
            (&device, FI_HMEM_DEVICE_ONLY, Errno::ENOSYS),
        ] {
            let refused = regattr(&domain, attr, flags);
            assert_eq!(refused.err(), Some(error.to_c()), "{flags:#x}");
        }
        // A mapped file is memory of this process, and not of a device.
        let mut file = fi_mr_dmabuf {
            fd: -1,
            offset: 8,
            len: 8,
            base_addr: null_mut(),
        };
        let of_file = |file: *const fi_mr_dmabuf, iface| fi_mr_attr {
            mr_iov: file.cast(),
            iface,
            ..attr(&vector)
        };
        let refused = |attr| regattr(&domain, &attr, FI_MR_DMABUF).err();
        let error = Some(Errno::EBADFLAGS.to_c());
        assert_eq!(refused(of_file(&raw const file, FI_HMEM_SYSTEM)), error);
        file.base_addr = memory.as_mut_ptr().cast();
        assert_eq!(refused(of_file(&raw const file, FI_HMEM_CUDA)), error);
        let mapped = of_file(&raw const file, FI_HMEM_SYSTEM);
        let mr = regattr(&domain, &mapped, FI_MR_DMABUF).unwrap();
        assert_eq!(close(mr.cast()), 0);
    }
}

#[test]
fn flags_about_memory_of_devices_change_nothing_of_ordinary_memory() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let vector = iov(&mut memory);
    const BOTH: u64 = FI_HMEM_DEVICE_ONLY | FI_HMEM_HOST_ALLOC;
    for flags in [FI_HMEM_DEVICE_ONLY, FI_HMEM_HOST_ALLOC, BOTH] {
        let mr = regattr(&domain, &attr(&vector), flags).unwrap();
        assert_eq!(close(mr.cast()), 0);
    }
    // Calls without attributes ignore the flags.
    for flags in [BOTH, FI_MR_DMABUF] {
        let mr = register(&domain, &mut memory, REMOTE, 7, flags).unwrap();
        assert_eq!(close(mr.cast()), 0);
    }
}

#[test]
fn raw_keys_are_as_long_as_the_device_has_them() {
    let (domain, state) = domain(FI_MR_RAW | FI_MR_PROV_KEY, false, Registrar::Device);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    assert_eq!(desc_and_key(mr), (1, NO_KEY));
    let (mut base, mut raw, mut size) = (0, [0u8; RAW_KEY], 8);
    let mut attr = fi_mr_raw_attr {
        flags: 0,
        base_addr: &mut base,
        raw_key: raw.as_mut_ptr(),
        key_size: &mut size,
    };
    let too_small = control(mr, FI_GET_RAW_MR, &mut attr);
    assert_eq!(too_small, Errno::ETOOSMALL.to_c());
    assert_eq!(control(mr, FI_GET_RAW_MR, &mut attr), 0);
    assert_eq!((size, raw), (RAW_KEY, [1; RAW_KEY]));
    state.diary();

    let mut key = 0;
    let mut map = |size| {
        let mut map = fi_mr_map_raw {
            flags: 0,
            base_addr: 99,
            raw_key: raw.as_mut_ptr(),
            key_size: size,
            key: &mut key,
        };
        // SAFETY: the argument has the command's type.
        unsafe { super::super::control(&domain.table, FI_MAP_RAW_MR, (&raw mut map).cast()) }
    };
    assert_eq!(map(8), Some(Err(Errno::EINVAL)));
    assert_eq!(map(RAW_KEY), Some(Ok(0)));
    let unmap = |key: *mut u64| {
        // SAFETY: the argument has the command's type, which is a key, or is null.
        unsafe { super::super::control(&domain.table, FI_UNMAP_KEY, key.cast()) }
    };
    assert_eq!(unmap(&mut key), Some(Ok(0)));
    assert_eq!(unmap(null_mut()), Some(Err(Errno::EINVAL)));
    assert_eq!(state.diary(), ["map at 99", "unmap 1"]);
    assert_eq!(close(mr.cast()), 0);
}

#[test]
fn a_device_is_informed_of_the_bindings_of_a_region() {
    let (domain, state) = domain(FI_MR_ENDPOINT, false, Registrar::Both);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    state.diary();
    let endpoint = Handle::new(TestEndpoint, null_mut(), Vec::new()).into_c();
    // SAFETY: the region and the other object are open.
    let bind = |fid: *mut fid| unsafe { (*(*mr).fid.ops).bind.unwrap()(mr.cast(), fid, 0) };
    let enable = || control(mr, FI_ENABLE, null_mut::<c_void>());

    state.refuse_next(Errno::EINVAL);
    assert_eq!(bind(endpoint), Errno::EINVAL.to_c());
    assert_eq!(enable(), Errno::EINVAL.to_c());
    assert_eq!(bind(endpoint), 0);
    state.refuse_next(Errno::ENOMEM);
    assert_eq!(enable(), Errno::ENOMEM.to_c());
    let mut accessor = domain.table.accessor();
    let mut resolve = || accessor.resolve(1007, 0, 1, REMOTE, Job::NONE);
    assert_eq!(resolve().err(), Some(Errno::EACCES));
    assert_eq!(enable(), 0);
    assert!(resolve().is_ok());

    let part = iov(&mut memory[8..]);
    let mut modify = fi_mr_modify {
        flags: 0,
        attr: attr(&part),
    };
    assert_eq!(control(mr, FI_REFRESH, &mut modify), 0);
    modify.attr.iov_count = 0;
    assert_eq!(control(mr, FI_REFRESH, &mut modify), 0);
    assert_eq!(
        state.diary(),
        ["bind 1", "enable 1", "refresh [8]", "refresh []"]
    );
    assert_eq!(close(endpoint), Errno::EBUSY.to_c());
    assert_eq!(close(mr.cast()), 0);
    assert_eq!(close(endpoint), 0);
}

#[test]
fn only_the_mover_of_the_data_can_count() {
    for (registrar, outcome) in [
        (Registrar::Both as fn(_) -> _, 0),
        (Registrar::Device, Errno::ENOSYS.to_c()),
    ] {
        let (domain, _) = domain(0, false, registrar);
        let mut memory = [0; 16];
        let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
        let cntr = Cntr::new(CntrEvents::Completions, Attachment::None, None);
        let cntr = Handle::new(cntr, null_mut(), Vec::new());
        // SAFETY: the region and the counter are open.
        let bound = unsafe {
            let bind = (*(*mr).fid.ops).bind.unwrap();
            bind(mr.cast(), cntr.fid(), FI_REMOTE_WRITE)
        };
        assert_eq!(bound, outcome);
        assert_eq!(close(mr.cast()), 0);
        assert_eq!(close(cntr.into_c().cast()), 0);
    }
}
