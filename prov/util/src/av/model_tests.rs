//! Address vectors against a model, for any sequence of calls.

use proptest::prelude::*;

use super::*;

/// Slots as fi_av(3) describes them, each with its address and how often it
/// was inserted.
#[derive(Default)]
struct Model {
    slots: Vec<Option<(SocketAddr, u32)>>,
    /// Whether one removal takes all insertions of an address back.
    shared: bool,
}

impl Model {
    fn find(&self, addr: SocketAddr) -> Option<usize> {
        let same = |slot: &Option<(SocketAddr, u32)>| slot.is_some_and(|(known, _)| known == addr);
        self.slots.iter().position(same)
    }

    fn insert(&mut self, addr: SocketAddr) -> usize {
        if let Some(at) = self.find(addr) {
            if let Some((_, count)) = &mut self.slots[at] {
                *count += 1;
            }
            return at;
        }
        let slot = Some((addr, 1));
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

    fn address(&self, at: usize) -> Option<SocketAddr> {
        self.slots.get(at).copied().flatten().map(|(addr, _)| addr)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Through the one or the other opener of a shared vector.
    Insert(bool, Vec<SocketAddr>),
    Remove(bool, u8),
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<bool>(), 1u16..20).prop_map(|(v6, n)| {
        let text = if v6 {
            format!("[fd00::{n}]:9")
        } else {
            format!("10.0.0.{n}:9")
        };
        text.parse().unwrap()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<bool>(), prop::collection::vec(address(), 0..5))
            .prop_map(|(who, addrs)| Step::Insert(who, addrs)),
        2 => (any::<bool>(), 0u8..40).prop_map(|(who, at)| Step::Remove(who, at)),
    ];
    prop::collection::vec(step, 0..60)
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
                    .map(|&addr| Ok(model.insert(addr) as u64))
                    .collect();
                openers[usize::from(who)]
                    .insert(addrs.into_iter().map(Insertion::from), |_, number| {
                        numbers.push(number)
                    })
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
            prop_assert_eq!(av.lookup(at as u64), model.address(at));
        }
        for slot in model.slots.iter().flatten() {
            prop_assert_eq!(av.find(&slot.0), model.find(slot.0).map(|at| at as u64));
        }
        prop_assert_eq!(av.len(), model.slots.iter().flatten().count());
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_vector_does_as_the_model_does(steps in steps()) {
        let av = Av::open(&Config::default()).unwrap();
        run([&av, &av], steps, false)?;
    }

    #[test]
    fn two_openers_of_a_shared_vector_do_as_one_model_does(steps in steps()) {
        let name = format!("av-model-{}", std::process::id());
        let config = Config {
            shared: Some(Name { name: &name, domain: "lo", read_only: false, count: 0 }),
            ..Config::default()
        };
        let one = Av::open(&config).unwrap();
        let other = Av::open(&config).unwrap();
        run([&one, &other], steps, true)?;
    }
}
