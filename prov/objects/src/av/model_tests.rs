//! Address vectors against a model, for any sequence of calls, in every kind
//! of format.

use proptest::prelude::*;

use super::*;

/// An address that a vector may hold.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    Internet(SocketAddr),
    Bytes(Vec<u8>),
}

impl Known {
    fn as_address(&self) -> Address<'_> {
        match self {
            Known::Internet(addr) => Address::Internet(*addr),
            Known::Bytes(bytes) => Address::Bytes(bytes),
        }
    }
}

/// Slots as fi_av(3) describes them, each with its address and how often it
/// was inserted.
#[derive(Default)]
struct Model {
    slots: Vec<Option<(Known, u32)>>,
    /// Whether one removal takes all insertions of an address back.
    shared: bool,
}

impl Model {
    fn find(&self, addr: &Known) -> Option<usize> {
        let same =
            |slot: &Option<(Known, u32)>| slot.as_ref().is_some_and(|(known, _)| known == addr);
        self.slots.iter().position(same)
    }

    fn insert(&mut self, addr: &Known) -> usize {
        if let Some(at) = self.find(addr) {
            if let Some((_, count)) = &mut self.slots[at] {
                *count += 1;
            }
            return at;
        }
        let slot = Some((addr.clone(), 1));
        match self.slots.iter().position(Option::is_none) {
            Some(gap) => {
                self.slots[gap] = slot;
                gap
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    fn remove(&mut self, at: usize) -> Result {
        let slot = self.slots.get_mut(at).ok_or(Errno::EINVAL)?;
        let (_, count) = slot.as_mut().ok_or(Errno::EINVAL)?;
        *count -= 1;
        if *count == 0 || self.shared {
            *slot = None;
        }
        Ok(())
    }

    fn address(&self, at: usize) -> Option<&Known> {
        self.slots.get(at)?.as_ref().map(|(addr, _)| addr)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Through the one or the other opener of a shared vector.
    Insert(bool, Vec<Known>),
    Remove(bool, u8),
}

fn internet() -> impl Strategy<Value = Known> {
    (any::<bool>(), 1u16..20).prop_map(|(v6, n)| {
        let text = if v6 {
            format!("[fd00::{n}]:9")
        } else {
            format!("10.0.0.{n}:9")
        };
        Known::Internet(text.parse().unwrap())
    })
}

/// A format of bytes, and a family of its addresses, zeros among them.
fn format_of_bytes() -> impl Strategy<Value = (Format, BoxedStrategy<Known>)> {
    let named = |prefix: &'static str| {
        (0u32..20)
            .prop_map(move |n| Known::Bytes(format!("{prefix}{}", n * n * n).into_bytes()))
            .boxed()
    };
    let sized = |size: usize| {
        (0u8..20)
            .prop_map(move |n| Known::Bytes((0..size).map(|at| n * (at as u8 & 1)).collect()))
            .boxed()
    };
    prop_oneof![
        (2usize..50).prop_map(move |size| (Format::fixed(FI_FORMAT_UNSPEC, size), sized(size))),
        Just(()).prop_map(move |()| (Format::text(30), named("fi_shm://"))),
    ]
}

fn steps(address: impl Strategy<Value = Known>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<bool>(), prop::collection::vec(address, 0..5))
            .prop_map(|(who, addrs)| Step::Insert(who, addrs)),
        2 => (any::<bool>(), 0u8..40).prop_map(|(who, at)| Step::Remove(who, at)),
    ];
    prop::collection::vec(step, 0..60)
}

fn steps_in_bytes() -> impl Strategy<Value = (Format, Vec<Step>)> {
    format_of_bytes().prop_flat_map(|(format, address)| (Just(format), steps(address)))
}

fn run(
    openers: [&Av; 2],
    steps: Vec<Step>,
    shared: bool,
) -> std::result::Result<(), TestCaseError> {
    let mut model = Model {
        shared,
        ..Model::default()
    };
    for step in steps {
        match step {
            Step::Insert(who, addrs) => {
                let mut numbers = Vec::new();
                let expected: Vec<_> = addrs
                    .iter()
                    .map(|addr| Ok(model.insert(addr) as u64))
                    .collect();
                let insertions = addrs.iter().map(|addr| addr.as_address().into());
                openers[usize::from(who)]
                    .insert(insertions, |_, number| numbers.push(number))
                    .unwrap();
                prop_assert_eq!(numbers, expected);
            }
            Step::Remove(who, at) => {
                let outcome = openers[usize::from(who)].remove(&[at.into()]);
                prop_assert_eq!(outcome, model.remove(at.into()));
            }
        }
    }
    for av in openers {
        for at in 0..model.slots.len() + 2 {
            let known = model.address(at);
            let same =
                av.with_address(at as u64, |addr| known.map(Known::as_address) == Some(addr));
            prop_assert_eq!(same, known.map(|_| true));
        }
        for (addr, _) in model.slots.iter().flatten() {
            let found = av.find_address(addr.as_address());
            prop_assert_eq!(found, model.find(addr).map(|at| at as u64));
            if let Known::Internet(internet) = addr {
                prop_assert_eq!(av.find(internet), found);
                prop_assert_eq!(found.and_then(|at| av.lookup(at)), Some(*internet));
            }
        }
        prop_assert_eq!(av.len(), model.slots.iter().flatten().count());
    }
    Ok(())
}

fn run_shared(format: Format, steps: Vec<Step>) -> std::result::Result<(), TestCaseError> {
    let name = format!("av-model-{}-{}", std::process::id(), format.number());
    let config = Config {
        format,
        shared: Some(Name {
            name: &name,
            domain: "lo",
            read_only: false,
            count: 0,
        }),
        ..Config::default()
    };
    let one = Av::open(&config).unwrap();
    let other = Av::open(&config).unwrap();
    run([&one, &other], steps, true)
}

proptest! {
    #[test]
    fn a_vector_does_as_the_model_does(steps in steps(internet())) {
        let av = Av::open(&Config::default()).unwrap();
        run([&av, &av], steps, false)?;
    }

    #[test]
    fn a_vector_of_bytes_does_as_the_model_does((format, steps) in steps_in_bytes()) {
        let av = Av::open(&Config { format, ..Config::default() }).unwrap();
        run([&av, &av], steps, false)?;
    }

    #[test]
    fn two_openers_of_a_shared_vector_do_as_one_model_does(steps in steps(internet())) {
        run_shared(Format::IP, steps)?;
    }

    #[test]
    fn two_openers_of_a_shared_vector_of_bytes_do_as_one_model_does(
        (format, steps) in steps_in_bytes()
    ) {
        run_shared(format, steps)?;
    }
}
