//! Which subflows the side that connects makes, and when.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::wire::multipath::MAX_SUBFLOWS;

/// Pause before the first attempt to make a subflow again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A subflow that has existed for this long has worked: the next pause is short again.
const HAS_WORKED: Duration = Duration::from_secs(5);

/// See the [module](self) description. It is empty on the side that is connected to.
#[derive(Default)]
pub struct Plan {
    /// By number.
    routes: Vec<Route>,
}

/// One subflow.
struct Route {
    /// The address to connect from; the system's choice without one.
    local: Option<SocketAddr>,
    remote: SocketAddr,
    state: State,
    /// The pause before the next attempt.
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It exists, or an attempt to make it is in progress.
    Is,
    /// It is made at this time.
    Waits(Instant),
}

/// A subflow to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub number: u8,
    pub local: Option<SocketAddr>,
    pub remote: SocketAddr,
}

impl Plan {
    /// Plans subflows between the addresses of both sides, beside the `first` one between two of
    /// them: each interface of the side that has more is used, `streams` times. `local_towards`
    /// returns the address from which the system sends to another one.
    pub fn new(
        first: (SocketAddr, SocketAddr),
        locals: &[SocketAddr],
        remotes: &[SocketAddr],
        streams: usize,
        local_towards: impl Fn(&SocketAddr) -> Option<IpAddr>,
    ) -> Self {
        let mut pairs = pairs(locals, remotes, local_towards);
        let is_first = |(local, remote): &(Option<SocketAddr>, SocketAddr)| {
            local.is_none_or(|local| local.ip() == first.0.ip()) && remote.ip() == first.1.ip()
        };
        match pairs.iter().position(is_first) {
            Some(place) => pairs.swap(0, place),
            None => {
                if let Some(other) = remotes.first() {
                    let remote = SocketAddr::new(first.1.ip(), other.port());
                    pairs.insert(0, (Some(SocketAddr::new(first.0.ip(), 0)), remote));
                }
            }
        }
        let all = std::iter::repeat_n(pairs, streams.max(1)).flatten();
        let routes = all.take(MAX_SUBFLOWS).enumerate();
        let now = Instant::now();
        let routes = routes.map(|(number, (local, remote))| Route {
            local,
            remote,
            state: match number {
                0 => State::Is,
                _ => State::Waits(now),
            },
            pause: FIRST_PAUSE,
        });
        Plan {
            routes: routes.collect(),
        }
    }

    /// Whether there is only the first subflow.
    pub fn is_single(&self) -> bool {
        self.routes.len() < 2
    }

    /// Returns the next subflow to make now, which is then in progress.
    pub fn attempt(&mut self, now: Instant) -> Option<Attempt> {
        let is_due = |route: &Route| matches!(route.state, State::Waits(at) if at <= now);
        let mut routes = (0..).zip(&mut self.routes);
        let (number, route) = routes.find(|(_, route)| is_due(route))?;
        route.state = State::Is;
        Some(Attempt {
            number,
            local: route.local,
            remote: route.remote,
        })
    }

    /// Returns when the next subflow is to be made.
    pub fn next(&self) -> Option<Instant> {
        let times = self.routes.iter().filter_map(|route| match route.state {
            State::Is => None,
            State::Waits(at) => Some(at),
        });
        times.min()
    }

    /// Notes that a subflow could not be made, or has failed after some time.
    pub fn failed(&mut self, number: u8, now: Instant, age: Duration) {
        let Some(route) = self.routes.get_mut(usize::from(number)) else {
            return;
        };
        if route.state != State::Is {
            return;
        }
        if age >= HAS_WORKED {
            route.pause = FIRST_PAUSE;
        }
        route.state = State::Waits(now + route.pause);
        route.pause = (route.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns pairs of addresses such that each address of either side is in one.
fn pairs(
    locals: &[SocketAddr],
    remotes: &[SocketAddr],
    local_towards: impl Fn(&SocketAddr) -> Option<IpAddr>,
) -> Vec<(Option<SocketAddr>, SocketAddr)> {
    if remotes.is_empty() {
        return Vec::new();
    }
    if locals.is_empty() {
        return remotes.iter().map(|&remote| (None, remote)).collect();
    }
    let towards: Vec<_> = remotes.iter().map(local_towards).collect();
    let local_count = locals.len();
    let count = local_count.max(remotes.len());
    let locals = locals.iter().cycle().take(count).enumerate();
    let pairs = locals.filter_map(|(turn, local)| {
        // A local address is paired with one of its own network, if there is one.
        let all = remotes.iter().zip(&towards);
        let all = all.filter(|(remote, _)| remote.is_ipv4() == local.is_ipv4());
        let own = all.clone().filter(|(_, to)| **to == Some(local.ip()));
        let own: Vec<_> = own.map(|(remote, _)| *remote).collect();
        let remote = match own.get((turn / local_count) % own.len().max(1)) {
            Some(remote) => *remote,
            None => {
                let all: Vec<_> = all.map(|(remote, _)| *remote).collect();
                *all.get(turn % all.len().max(1))?
            }
        };
        Some((Some(*local), remote))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn planned(
        first: (&str, &str),
        locals: &[&str],
        remotes: &[&str],
        streams: usize,
        local_towards: impl Fn(&SocketAddr) -> Option<IpAddr>,
    ) -> (Plan, Vec<String>) {
        let locals: Vec<_> = locals.iter().map(|text| addr(text)).collect();
        let remotes: Vec<_> = remotes.iter().map(|text| addr(text)).collect();
        let first = (addr(first.0), addr(first.1));
        let plan = Plan::new(first, &locals, &remotes, streams, local_towards);
        let routes = plan.routes.iter().map(|route| {
            let local = route
                .local
                .map_or("-".into(), |local| local.ip().to_string());
            format!("{local} {}", route.remote)
        });
        let routes = routes.collect();
        (plan, routes)
    }

    /// 10.0.x.1 reaches 10.0.x.2.
    fn by_network(remote: &SocketAddr) -> Option<IpAddr> {
        let text = remote.ip().to_string();
        text.replace(".2", ".1").parse().ok()
    }

    #[test]
    fn interfaces_are_paired_within_their_networks() {
        let first = ("10.0.8.1:99", "10.0.8.2:5");
        let (_, routes) = planned(
            first,
            &["10.0.7.1:0", "10.0.8.1:0", "10.0.9.1:0"],
            &["10.0.9.2:4", "10.0.8.2:5", "10.0.7.2:6"],
            1,
            by_network,
        );
        let expected = [
            "10.0.8.1 10.0.8.2:5",
            "10.0.7.1 10.0.7.2:6",
            "10.0.9.1 10.0.9.2:4",
        ];
        assert_eq!(routes, expected);
    }

    #[test]
    fn each_interface_is_used_by_all_streams() {
        let first = ("10.0.7.1:99", "10.0.7.2:5");
        let nobody = |_: &SocketAddr| None;
        let remotes = ["10.0.7.2:5", "10.0.8.2:5"];
        let (_, routes) = planned(first, &["10.0.7.1:0"], &remotes, 2, nobody);
        let expected = ["10.0.7.1 10.0.7.2:5", "10.0.7.1 10.0.8.2:5"];
        assert_eq!(routes, [expected, expected].concat());
        let (_, routes) = planned(first, &[], &remotes, 1, nobody);
        assert_eq!(routes, ["- 10.0.7.2:5", "- 10.0.8.2:5"]);
        let locals = ["10.0.7.1:0", "10.0.8.1:0"];
        let (_, routes) = planned(first, &locals, &["10.0.7.2:5"], 1, nobody);
        assert_eq!(routes, ["10.0.7.1 10.0.7.2:5", "10.0.8.1 10.0.7.2:5"]);
        let (_, routes) = planned(first, &locals, &["10.0.7.2:5"], 100, nobody);
        assert_eq!(routes.len(), MAX_SUBFLOWS);
    }

    #[test]
    fn a_subflow_is_made_again_after_pauses_that_grow() {
        let (mut plan, _) = planned(
            ("10.0.7.1:99", "10.0.7.2:5"),
            &["10.0.7.1:0", "10.0.8.1:0"],
            &["10.0.7.2:5", "10.0.8.2:5"],
            1,
            by_network,
        );
        let mut now = Instant::now();
        let attempt = plan.attempt(now).unwrap();
        assert_eq!((attempt.number, attempt.remote), (1, addr("10.0.8.2:5")));
        assert_eq!((plan.attempt(now), plan.next()), (None, None));
        let mut pause = |age: Duration| {
            plan.failed(1, now, age);
            plan.failed(1, now, age);
            let next = plan.next().unwrap();
            assert_eq!(plan.attempt(next - Duration::from_millis(1)), None);
            assert!(plan.attempt(next).is_some());
            let pause = next - now;
            now = next;
            pause
        };
        let pauses: Vec<_> = (0..9).map(|_| pause(Duration::ZERO).as_millis()).collect();
        assert_eq!(
            pauses,
            [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
        assert_eq!(pause(HAS_WORKED).as_millis(), 100);
        assert_eq!(pause(Duration::ZERO).as_millis(), 200);
    }
}
