//! Connections, counted by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::{CROWD, Peer};
use drover_config::PER_CLIENT;

/// Who is connected.
#[derive(Debug)]
pub struct Visitors {
    per_client: AtomicUsize,
    of_this_machine: AtomicUsize,
    most: usize,
    inside: Mutex<VisitorCounts>,
}

#[derive(Debug, Default)]
struct VisitorCounts {
    by_address: HashMap<Whence, usize>,
    all: usize,
}

/// Where connections come from that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whence {
    Address(IpAddr),
    /// One of those that come through the agent at an address.
    Behind(IpAddr, IpAddr),
    /// All of them.
    Crowd(IpAddr),
}

/// One connection; its place is free again when this is dropped.
#[derive(Debug)]
pub struct Visit {
    visitors: Arc<Visitors>,
    places: [Option<Whence>; 2],
}

impl Visitors {
    /// At most `per_client` connections of one address (0: any number), and `most` of all. Where
    /// nothing is configured, [`PER_CLIENT`] of one address, and any number of this machine's own:
    /// all that runs here shares that one.
    #[must_use]
    pub fn new(per_client: Option<u32>, most: usize) -> Arc<Self> {
        let visitors = Self {
            per_client: AtomicUsize::new(0),
            of_this_machine: AtomicUsize::new(0),
            most,
            inside: Mutex::default(),
        };
        visitors.limit(per_client);
        Arc::new(visitors)
    }

    /// These limits from now on; connections that are open stay.
    pub fn limit(&self, per_client: Option<u32>) {
        let number = |configured| match usize::try_from(configured) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(number) => number,
        };
        let (elsewhere, here) = (per_client.unwrap_or(PER_CLIENT), per_client.unwrap_or(0));
        self.per_client.store(number(elsewhere), Ordering::Relaxed);
        self.of_this_machine.store(number(here), Ordering::Relaxed);
    }

    /// Lets a connection in; none when there are too many already. Of those that come through
    /// another agent each has as many as an address has, and all of them so many times as much.
    #[must_use]
    pub fn enter(self: &Arc<Self>, peer: &Peer) -> Option<Visit> {
        let address = peer.ip().to_canonical();
        let most_here = match address.is_loopback() {
            true => &self.of_this_machine,
            false => &self.per_client,
        };
        let most_here = most_here.load(Ordering::Relaxed);
        let places = match peer.behind {
            None => [Some(Whence::Address(address)), None],
            Some(first) => {
                let one = Whence::Behind(address, first.to_canonical());
                [Some(one), Some(Whence::Crowd(address))]
            }
        };
        let mut inside = self.inside.lock();
        let full = |place: &Whence| {
            let most = match place {
                Whence::Crowd(_) => most_here.saturating_mul(CROWD as usize),
                Whence::Address(_) | Whence::Behind(..) => most_here,
            };
            inside
                .by_address
                .get(place)
                .is_some_and(|here| *here >= most)
        };
        if places.iter().flatten().any(full) || inside.all >= self.most {
            return None;
        }
        for place in places.into_iter().flatten() {
            *inside.by_address.entry(place).or_default() += 1;
        }
        inside.all += 1;
        drop(inside);
        Some(Visit {
            visitors: Arc::clone(self),
            places,
        })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut inside = self.visitors.inside.lock();
        inside.all = inside.all.saturating_sub(1);
        for place in self.places.iter().flatten() {
            if let Some(here) = inside.by_address.get_mut(place) {
                *here -= 1;
                if *here == 0 {
                    inside.by_address.remove(place);
                }
            }
        }
    }
}

/// How many of those that are turned away are answered with the reason: ten a second, a hundred at
/// once.
#[derive(Debug)]
pub struct Refusals {
    left: f64,
    at: Instant,
}

const WORDS_PER_SECOND: f64 = 10.0;
const WORDS_AT_ONCE: f64 = 100.0;

impl Default for Refusals {
    fn default() -> Self {
        Self {
            left: WORDS_AT_ONCE,
            at: Instant::now(),
        }
    }
}

impl Refusals {
    /// Whether this one is answered.
    pub fn word(&mut self) -> bool {
        let now = Instant::now();
        let since = now.duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * WORDS_PER_SECOND).min(WORDS_AT_ONCE);
        self.at = now;
        let reported = self.left >= 1.0;
        if reported {
            self.left -= 1.0;
        }
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> Peer {
        Peer {
            address: Some(address.parse().unwrap()),
            ..Peer::default()
        }
    }

    #[test]
    fn places_are_limited_by_address_and_in_all_and_come_back() {
        let visitors = Visitors::new(Some(2), 3);
        let (one, mapped) = (from("10.0.0.1:1"), from("[::ffff:10.0.0.1]:2"));
        let (other, third) = (from("10.0.0.2:1"), from("10.0.0.3:1"));
        let first = visitors.enter(&one).unwrap();
        let second = visitors.enter(&mapped).unwrap();
        assert!(visitors.enter(&one).is_none(), "two of one address");
        let _third = visitors.enter(&other).unwrap();
        assert!(visitors.enter(&third).is_none(), "three in all");
        drop((first, second));
        assert!(visitors.enter(&one).is_some());
        assert_eq!(visitors.inside.lock().by_address.len(), 1);
        let free = Visitors::new(Some(0), 1_000);
        let all: Vec<Visit> = (0..1_000).filter_map(|_| free.enter(&one)).collect();
        assert_eq!(all.len(), 1_000, "0 is no limit");
        let (usual, here) = (Visitors::new(None, 1_000), from("127.0.0.1:1"));
        let all: Vec<Visit> = (0..1_000).filter_map(|_| usual.enter(&one)).collect();
        assert_eq!(all.len(), PER_CLIENT as usize);
        let own: Vec<Visit> = (0..200).filter_map(|_| usual.enter(&here)).collect();
        assert_eq!(own.len(), 200, "all that runs here shares one address");
        let reported = Visitors::new(Some(1), 1_000);
        let _one = reported.enter(&here).unwrap();
        assert!(
            reported.enter(&here).is_none(),
            "what is configured counts here too"
        );
    }

    #[test]
    fn those_who_come_through_an_agent_have_places_of_their_own_and_it_cannot_make_up_many() {
        let visitors = Visitors::new(Some(1), 1_000);
        let through = |agent: &str, first: &str| Peer {
            behind: Some(first.parse().unwrap()),
            ..from(agent)
        };
        let (one, other) = ("10.0.0.1:1", "10.0.0.2:1");
        let _own = visitors.enter(&from(one)).unwrap();
        let red = visitors.enter(&through(one, "10.9.0.1")).unwrap();
        assert!(visitors.enter(&through(one, "10.9.0.1")).is_none());
        let blue = visitors.enter(&through(one, "10.9.0.2"));
        assert!(blue.is_some(), "another is another");
        let entered = visitors.enter(&through(other, "10.9.0.1"));
        assert!(
            entered.is_some(),
            "what one agent says is nothing to another"
        );
        let theirs = visitors.enter(&from("10.9.0.1:1"));
        assert!(theirs.is_some(), "nor to whose address it names");
        let many = (3..200).filter_map(|n| visitors.enter(&through(one, &format!("10.9.1.{n}"))));
        let many: Vec<Visit> = many.collect();
        assert_eq!(many.len(), CROWD as usize - 2);
        drop(red);
        assert!(visitors.enter(&through(one, "10.9.2.1")).is_some());
        drop((many, blue, entered, theirs));
        assert_eq!(visitors.inside.lock().by_address.len(), 1);
    }

    #[test]
    fn a_flood_is_not_answered_one_by_one() {
        let mut refusals = Refusals::default();
        let reported = (0..10_000).filter(|_| refusals.word()).count();
        assert!((100..1_000).contains(&reported), "{reported}");
    }
}
