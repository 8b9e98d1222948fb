//! Endpoints that know one another.

use std::ops::Index;
use std::time::{Duration, Instant};

use prov_base::errno::{Errno, Result};
use prov_util::cq::{Completion, ErrorCompletion};

use crate::side::{RECEIVED, SENT};
use crate::{Bench, Message, Setting, Side};

/// How long nothing may complete before a test fails: a machine that is busy otherwise is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Turns of all endpoints after which what is under way between them has arrived, where nothing else
/// shows that: no test may depend on it to pass.
const TURNS: usize = 100;

/// Endpoints that know one another: each calls another one, and itself, by its position.
pub struct World<B: Bench> {
    /// `None` for those that have closed.
    sides: Vec<Option<Side<B>>>,
    pub(crate) bench: B,
    setting: Setting,
}

impl<B: Bench> Index<usize> for World<B> {
    type Output = Side<B>;

    fn index(&self, position: usize) -> &Side<B> {
        self.sides[position]
            .as_ref()
            .expect("an endpoint that is closed")
    }
}

impl<B: Bench> World<B> {
    /// This many endpoints.
    pub fn of(count: usize) -> World<B> {
        World::with(Setting::default(), count)
    }

    /// The same with another setting.
    pub fn with(setting: Setting, count: usize) -> World<B> {
        let mut world = World::<B>::of_strangers(setting, count);
        let sides: Vec<_> = world.sides.iter().flatten().collect();
        world.bench.introduce(&sides);
        world
    }

    /// Endpoints that do not know one another.
    pub fn of_strangers(setting: Setting, count: usize) -> World<B> {
        let mut bench = B::new(setting);
        let sides = (0..count)
            .map(|_| Some(Side::open(&mut bench, setting)))
            .collect();
        World {
            sides,
            bench,
            setting,
        }
    }

    /// Opens another endpoint, which nobody knows; returns its position.
    pub fn join(&mut self) -> usize {
        let side = Side::open(&mut self.bench, self.setting);
        self.sides.push(Some(side));
        self.sides.len() - 1
    }

    /// Closes an endpoint.
    pub fn close(&mut self, position: usize) {
        self.sides[position] = None;
    }

    /// Closes an endpoint, whose address is still to be inserted.
    pub fn end(&mut self, position: usize) {
        self[position].close();
    }

    fn sides(&self) -> impl Iterator<Item = &Side<B>> {
        self.sides.iter().flatten()
    }

    /// Drives all endpoints once.
    pub fn turn(&self) {
        self.sides().for_each(Side::drive);
    }

    /// Lets arrive what is under way.
    pub fn settle(&self) {
        (0..TURNS).for_each(|_| self.turn());
    }

    /// Drives all endpoints until something is there.
    #[track_caller]
    pub fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        let left = || self.sides().map(Side::left).sum::<usize>();
        let (mut before, mut since) = (left(), Instant::now());
        loop {
            if let Some(found) = found() {
                return found;
            }
            self.turn();
            if left() != before {
                (before, since) = (left(), Instant::now());
            }
            let errors: Vec<_> = self.sides().map(Side::errors).collect();
            assert!(
                since.elapsed() < PATIENCE,
                "nothing happens any more; errors: {errors:?}"
            );
            std::thread::yield_now();
        }
    }

    /// The completion with this context at an endpoint.
    #[track_caller]
    pub fn done(&self, at: usize, context: usize) -> Completion {
        self.until(|| {
            assert_eq!(self[at].take_error(context).map(|error| error.err), None);
            self[at].take(context)
        })
    }

    /// The completion of what an endpoint has sent, if it has the usual context.
    #[track_caller]
    pub fn sent(&self, from: usize) -> Completion {
        self.done(from, SENT)
    }

    /// The completion of a receive with the usual context.
    #[track_caller]
    pub fn received(&self, at: usize) -> Completion {
        self.done(at, RECEIVED)
    }

    /// The error with this context at an endpoint.
    #[track_caller]
    pub fn failed(&self, at: usize, context: usize) -> ErrorCompletion {
        self.until(|| {
            assert!(self[at].take(context).is_none(), "a success");
            self[at].take_error(context)
        })
    }

    /// Posts an operation, once there is room for it.
    #[track_caller]
    pub fn post(&self, mut post: impl FnMut() -> Result) {
        self.until(|| match post() {
            Err(Errno::EAGAIN) => None,
            posted => {
                posted.unwrap();
                Some(())
            }
        });
    }

    /// Sends a message, once there is room for it.
    #[track_caller]
    pub fn send(&self, from: usize, message: Message) {
        self.post(|| self[from].send(message));
    }

    /// Nobody has completions or errors that were not expected.
    #[track_caller]
    pub fn is_quiet(&self) {
        self.settle();
        for side in self.sides() {
            assert_eq!((side.left(), side.errors()), (0, Vec::new()));
        }
    }
}
