#[cfg(not(loom))]
use std::sync::Weak;

use super::*;

/// Notes when it is due.
struct Noted {
    name: WorkName,
    log: Arc<std::sync::Mutex<Vec<usize>>>,
}

impl Due for Noted {
    fn name(&self) -> WorkName {
        self.name
    }

    fn due(self: Arc<Self>) {
        self.log.lock().unwrap().push(self.name.address);
    }

    fn begin(&self) {}

    fn never(self: Arc<Self>) {}
}

fn noted(number: usize, log: &Arc<std::sync::Mutex<Vec<usize>>>) -> Arc<dyn Due> {
    Arc::new(Noted {
        name: WorkName {
            is_deferred: true,
            address: number,
            endpoint: 0,
        },
        log: log.clone(),
    })
}

/// A counter's part in this.
struct Counter {
    value: Value,
    thresholds: Thresholds,
}

impl Counter {
    fn new() -> Self {
        Counter {
            value: Value::new(false),
            thresholds: Thresholds::new(),
        }
    }

    fn add(&self, amount: u64) {
        if self.value.add(amount).has_work() {
            self.thresholds.check(&self.value, Numbers::default());
        }
    }

    fn set(&self, number: u64) {
        let (before, armed) = self.value.set(number);
        if armed.has_work() {
            self.thresholds.check(&self.value, before);
        }
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::*;

    fn queue(counter: &Counter, number: usize, threshold: u64, log: &Log) {
        let reached = Reached::BySuccesses;
        let work = noted(number, log);
        counter
            .thresholds
            .wait(&counter.value, threshold, reached, work)
            .unwrap();
    }

    type Log = Arc<std::sync::Mutex<Vec<usize>>>;

    /// A thread that adds one to the counter.
    fn adding(counter: &loom::sync::Arc<Counter>) -> loom::thread::JoinHandle<()> {
        let counter = counter.clone();
        loom::thread::spawn(move || counter.add(1))
    }

    #[test]
    fn work_that_is_queued_while_the_counter_reaches_its_threshold_is_due_once() {
        loom::model(|| {
            let (counter, log) = (loom::sync::Arc::new(Counter::new()), Log::default());
            let updater = adding(&counter);
            queue(&counter, 1, 1, &log);
            updater.join().unwrap();
            assert_eq!(*log.lock().unwrap(), [1]);
        });
    }

    #[test]
    fn a_threshold_that_is_reached_and_left_again_is_not_missed() {
        loom::model(|| {
            let (counter, log) = (loom::sync::Arc::new(Counter::new()), Log::default());
            queue(&counter, 1, 1, &log);
            let updater = adding(&counter);
            counter.set(0);
            updater.join().unwrap();
            assert_eq!(*log.lock().unwrap(), [1]);
        });
    }

    #[test]
    fn two_updates_have_all_work_due_in_order() {
        loom::model(|| {
            let (counter, log) = (loom::sync::Arc::new(Counter::new()), Log::default());
            queue(&counter, 1, 1, &log);
            queue(&counter, 2, 2, &log);
            let updater = adding(&counter);
            counter.add(1);
            updater.join().unwrap();
            assert_eq!(*log.lock().unwrap(), [1, 2]);
        });
    }

    #[test]
    fn cancelled_work_is_not_due_and_due_work_is_not_cancelled() {
        loom::model(|| {
            let (counter, log) = (loom::sync::Arc::new(Counter::new()), Log::default());
            queue(&counter, 1, 1, &log);
            let updater = adding(&counter);
            let cancelled = counter.thresholds.remove(&counter.value, |_| true).len();
            updater.join().unwrap();
            assert_eq!(cancelled + log.lock().unwrap().len(), 1);
        });
    }
}

#[cfg(not(loom))]
mod model {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add(u64),
        AddError(u64),
        Set(u64),
        SetError(u64),
        Queue(u64, Reached),
        /// Of the works that were queued, modulo their number.
        Cancel(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = 0u64..12;
        let reached = prop_oneof![Just(Reached::BySuccesses), Just(Reached::ByEither)];
        prop_oneof![
            (0u64..5).prop_map(Step::Add),
            (0u64..3).prop_map(Step::AddError),
            number.clone().prop_map(Step::Set),
            (0u64..4).prop_map(Step::SetError),
            (0u64..16, reached).prop_map(|(threshold, reached)| Step::Queue(threshold, reached)),
            any::<usize>().prop_map(Step::Cancel),
        ]
    }

    /// What waits, by the definition: nothing is in order, all is looked at each time.
    #[derive(Default)]
    struct Model {
        numbers: Numbers,
        waiting: Vec<(u64, usize, Reached)>,
        begun: Vec<usize>,
    }

    impl Model {
        fn look(&mut self) {
            self.waiting.sort();
            let is_due = |&(threshold, _, reached): &(u64, usize, Reached)| match reached {
                Reached::BySuccesses => self.numbers.count >= threshold,
                Reached::ByEither => self.numbers.count + self.numbers.errors >= threshold,
            };
            let due: Vec<_> = self.waiting.iter().copied().filter(is_due).collect();
            self.waiting.retain(|work| !due.contains(work));
            self.begun.extend(due.iter().map(|(_, number, _)| number));
        }
    }

    impl PartialOrd for Reached {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Reached {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            (*self as u8).cmp(&(*other as u8))
        }
    }

    proptest! {
        #[test]
        fn work_is_due_once_in_the_order_of_thresholds_whatever_becomes_of_the_counter(
            steps in prop::collection::vec(step(), 0..60)
        ) {
            let (counter, log) = (Counter::new(), Arc::default());
            let mut model = Model::default();
            let mut queued = 0;
            for step in steps {
                let value = &counter.value;
                match step {
                    Step::Add(amount) => {
                        counter.add(amount);
                        model.numbers.count += amount;
                    }
                    Step::AddError(amount) => {
                        if value.add_error(amount).has_work() {
                            counter.thresholds.check(value, Numbers::default());
                        }
                        model.numbers.errors += amount;
                    }
                    Step::Set(number) => {
                        counter.set(number);
                        model.numbers.count = number;
                    }
                    Step::SetError(number) => {
                        let (before, armed) = value.set_error(number);
                        if armed.has_work() {
                            counter.thresholds.check(value, before);
                        }
                        model.numbers.errors = number;
                    }
                    Step::Queue(threshold, reached) => {
                        let work = noted(queued, &log);
                        counter.thresholds.wait(value, threshold, reached, work).unwrap();
                        model.waiting.push((threshold, queued, reached));
                        queued += 1;
                    }
                    Step::Cancel(which) if queued != 0 => {
                        let which = which % queued;
                        let taken = counter.thresholds.remove(value, |name| name.address == which);
                        let before = model.waiting.len();
                        model.waiting.retain(|(_, number, _)| *number != which);
                        prop_assert_eq!(taken.len(), before - model.waiting.len());
                    }
                    Step::Cancel(_) => {}
                }
                model.look();
                prop_assert_eq!(&*log.lock().unwrap(), &model.begun);
                // Updates of a counter at which nothing waits are what they are without this.
                let is_armed = value.add(0).has_work();
                prop_assert_eq!(is_armed, !model.waiting.is_empty());
            }
        }
    }

    #[test]
    fn a_closed_counter_gives_its_work_back_and_takes_none() {
        let (counter, log) = (Counter::new(), Arc::default());
        let queue = |number, threshold| {
            let work = noted(number, &log);
            let reached = Reached::ByEither;
            counter
                .thresholds
                .wait(&counter.value, threshold, reached, work)
        };
        queue(1, 7).unwrap();
        queue(2, 3).unwrap();
        let left = counter.thresholds.close(&counter.value);
        let names: Vec<_> = left.iter().map(|work| work.name().address).collect();
        assert_eq!(names, [2, 1]);
        counter.add(9);
        assert!(log.lock().unwrap().is_empty());
        assert_eq!(queue(3, 1), Err(Errno::EINVAL));
        let gone: Vec<_> = left.iter().map(Arc::downgrade).collect();
        drop(left);
        assert!(
            gone.iter()
                .all(|work: &Weak<dyn Due>| work.upgrade().is_none())
        );
    }
}
