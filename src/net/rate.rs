//! How many requests a second a caller may make: by identity, by address, and of a namespace.
//!
//! Each has a number of requests a second, and may make some seconds' worth at once. Kept of each
//! is one moment: the one at which it has all of that again. Once it has passed nothing needs to be
//! kept, so what is kept is bounded; where it is full all the same, all that come then share one
//! number.
//!
//! Invariants: a refused request is charged nothing, by any of the three; what is kept never holds
//! a name, only a keyed hash of it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::CROWD;
use drover_error::{Code, Refusal};

/// Callers and namespaces that are counted apart.
const MOST: usize = 65_536;
/// Of those so many a request makes at most.
const MADE: usize = 5;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// How often entries are looked for that need not be kept.
const SWEEP: u64 = 100_000_000;

/// What requests are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The caller: a token, a node, a certificate; one with none of these is its address.
    Identity,
    /// Where from.
    Address,
    /// About what.
    Namespace,
}

impl By {
    /// As it is reported and counted.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Address => "address",
            Self::Namespace => "namespace",
        }
    }
}

/// Requests a second; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerSecond {
    /// Of one caller.
    pub identity: u32,
    /// Of one address; of one /64 of IPv6.
    pub address: u32,
    /// Of one namespace.
    pub namespace: u32,
    /// So long a time's requests may come at once.
    pub burst: Duration,
}

impl PerSecond {
    fn of(&self, by: By) -> u32 {
        match by {
            By::Identity => self.identity,
            By::Address => self.address,
            By::Namespace => self.namespace,
        }
    }

    fn limits_something(&self) -> bool {
        self.identity > 0 || self.address > 0 || self.namespace > 0
    }
}

/// Who calls, from where, about what.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Who, where that is known.
    pub identity: Option<&'a str>,
    /// Whether the caller has proved it. Of an address, callers that have share one number, and
    /// those that have not another: a stranger uses up only that of strangers.
    pub proved: bool,
    /// From where.
    pub address: IpAddr,
    /// From where, as the agent at that address says, the request came to it, if it forwards.
    pub behind: Option<IpAddr>,
    /// About which namespace.
    pub namespace: Option<&'a str>,
}

/// Counts.
#[derive(Debug)]
pub struct Rates {
    began: Instant,
    set: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    allowed: PerSecond,
    hasher: RandomState,
    /// When each has all of its requests again, nanoseconds.
    full: HashMap<(By, u64), u64>,
    swept: u64,
    most: usize,
}

/// Too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exceeded {
    by: By,
    allowed: u32,
    /// Nanoseconds.
    wait: u64,
}

impl Rates {
    /// So many.
    #[must_use]
    pub fn new(allowed: PerSecond) -> Arc<Self> {
        let kept = Kept {
            allowed,
            hasher: RandomState::new(),
            full: HashMap::new(),
            swept: 0,
            most: MOST,
        };
        Arc::new(Self {
            began: Instant::now(),
            set: AtomicBool::new(allowed.limits_something()),
            kept: Mutex::new(kept),
        })
    }

    /// No limit.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Self::new(PerSecond::default())
    }

    /// So many from now on.
    pub fn limit(&self, allowed: PerSecond) {
        let mut kept = self.kept.lock();
        if kept.allowed != allowed {
            kept.allowed = allowed;
            kept.full = HashMap::new();
            self.set
                .store(allowed.limits_something(), Ordering::Relaxed);
        }
    }

    /// Whether anything is limited.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Counts a request.
    ///
    /// # Errors
    /// 429, with the time after which one more is allowed: the caller, its address or the namespace
    /// has had as many as are allowed.
    pub fn take(&self, asking: &Asking<'_>) -> Result<(), Refusal> {
        self.taken(|kept, now| kept.take(asking, now))
    }

    /// Counts a request against its address alone, as one of a stranger: its caller is found out
    /// elsewhere.
    ///
    /// # Errors
    /// As [`Rates::take`].
    pub fn take_of_address(&self, address: IpAddr) -> Result<(), Refusal> {
        self.taken(|kept, now| {
            let place = kept.place((address, None), false);
            kept.take_all([(By::Address, Some(place), 1)], now)
        })
    }

    /// Counts a request against the namespace that it is about alone: its caller was counted
    /// before.
    ///
    /// # Errors
    /// As [`Rates::take`].
    pub fn take_of_namespace(&self, namespace: &str) -> Result<(), Refusal> {
        self.taken(|kept, now| {
            let what = kept.hasher.hash_one(namespace);
            kept.take_all([(By::Namespace, Some(what), 1)], now)
        })
    }

    /// Gives back what [`Rates::take_of_address`] took: the request is counted here once more.
    pub fn give_back_of_address(&self, address: IpAddr) {
        if self.are_set() {
            let mut kept = self.kept.lock();
            let place = kept.place((address, None), false);
            kept.give_back((By::Address, place));
        }
    }

    /// Counts something; whether that is not too much. Nothing is refused for it, so that is not
    /// counted as a refusal.
    pub fn have_capacity(&self, asking: &Asking<'_>) -> bool {
        self.counted(|kept, now| kept.take(asking, now)).is_ok()
    }

    fn counted(
        &self,
        take: impl FnOnce(&mut Kept, u64) -> Result<(), Exceeded>,
    ) -> Result<(), Exceeded> {
        if !self.are_set() {
            return Ok(());
        }
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        take(&mut self.kept.lock(), now)
    }

    fn taken(
        &self,
        take: impl FnOnce(&mut Kept, u64) -> Result<(), Exceeded>,
    ) -> Result<(), Refusal> {
        self.counted(take).map_err(|Exceeded { by, allowed, wait }| {
            metrics::counter!("drover.requests.limited_total", "by" => by.name()).increment(1);
            let wait = Duration::from_nanos(wait).as_secs_f64().ceil().max(1.0);
            let name = by.name();
            let text = format!(
                "rate limit exceeded: requests that this {name} may make a second: {allowed}; try \
                 again in {wait}s"
            );
            // Some seconds' worth at most.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Refusal::new(Code::TooManyRequests, text).after(wait as u32)
        })
    }
}

/// The part of an address that is given to one: machines have a /64 of IPv6 to themselves.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let kept = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(kept.into())
        }
        four => four,
    }
}

/// The same of an address and of the one behind it.
fn networks((address, behind): (IpAddr, Option<IpAddr>)) -> (IpAddr, Option<IpAddr>) {
    (network(address), behind.map(network))
}

impl Kept {
    fn take(&mut self, asking: &Asking<'_>, now: u64) -> Result<(), Exceeded> {
        let whence = (asking.address, asking.behind);
        let who = match asking.identity {
            Some(name) => self.hasher.hash_one(name),
            None => self.hasher.hash_one(networks(whence)),
        };
        let place = self.place(whence, asking.proved);
        // Whatever an agent says of its callers, all of them together have a number too.
        let agent = network(asking.address);
        let crowd = asking.behind.map(|_| self.hasher.hash_one((agent, CROWD)));
        // Anonymous callers are as many as the agent says there are.
        let unknown = crowd.filter(|_| asking.identity.is_none());
        let what = asking.namespace.map(|name| self.hasher.hash_one(name));
        let counted = [
            (By::Identity, Some(who), 1),
            (By::Address, Some(place), 1),
            (By::Identity, unknown, CROWD),
            (By::Address, crowd, CROWD),
            (By::Namespace, what, 1),
        ];
        self.take_all(counted, now)
    }

    /// An address, of callers that have proved who they are or of the others.
    fn place(&self, whence: (IpAddr, Option<IpAddr>), proved: bool) -> u64 {
        self.hasher.hash_one((networks(whence), proved))
    }

    /// Each of these has so many times the number that is allowed.
    fn take_all<const N: usize>(
        &mut self,
        counted: [(By, Option<u64>, u32); N],
        now: u64,
    ) -> Result<(), Exceeded> {
        let mut charged = [None; N];
        for ((by, hash, times), charge) in counted.into_iter().zip(&mut charged) {
            let allowed = self.allowed.of(by).saturating_mul(times);
            if let (Some(hash), 1..) = (hash, allowed) {
                let key = self.key((by, hash), now);
                *charge = Some((key, self.charge(key, allowed, now)?));
            }
        }
        for (key, full) in charged.into_iter().flatten() {
            self.full.insert(key, full);
        }
        Ok(())
    }

    /// One that was charged was not.
    fn give_back(&mut self, key: (By, u64)) {
        let allowed = self.allowed.of(key.0);
        if let (1.., Some(full)) = (allowed, self.full.get_mut(&key)) {
            *full = full.saturating_sub(SECOND / u64::from(allowed));
        }
    }

    /// When one more is made up for, if it may be made now.
    fn charge(&self, key: (By, u64), allowed: u32, now: u64) -> Result<u64, Exceeded> {
        let each = SECOND / u64::from(allowed);
        let burst = u64::try_from(self.allowed.burst.as_nanos()).unwrap_or(u64::MAX);
        let full = self.full.get(&key).copied().unwrap_or(now).max(now) + each;
        match (full - now).checked_sub(burst.max(each)) {
            None | Some(0) => Ok(full),
            Some(wait) => Err(Exceeded {
                by: key.0,
                allowed,
                wait,
            }),
        }
    }

    /// The place of one; that of all others where there is no space for it.
    fn key(&mut self, key: (By, u64), now: u64) -> (By, u64) {
        if self.full.len() + MADE <= self.most || self.full.contains_key(&key) {
            return key;
        }
        if now >= self.swept.saturating_add(SWEEP) {
            self.swept = now;
            self.full.retain(|_, full| *full > now);
        }
        match self.full.len() + MADE <= self.most {
            true => key,
            false => (key.0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(identity: u32, address: u32, namespace: u32) -> Kept {
        let allowed = PerSecond {
            identity,
            address,
            namespace,
            burst: Duration::from_secs(2),
        };
        let rates = Rates::new(allowed);
        Arc::into_inner(rates).unwrap().kept.into_inner()
    }

    fn asking<'a>(identity: Option<&'a str>, address: &str, namespace: &'a str) -> Asking<'a> {
        Asking {
            identity,
            proved: identity.is_some(),
            address: address.parse().unwrap(),
            behind: None,
            namespace: Some(namespace),
        }
    }

    #[test]
    fn a_caller_has_its_number_and_gets_it_again_as_time_passes() {
        let mut kept = kept(5, 0, 0);
        let me = asking(Some("token:a"), "10.0.0.1", "red");
        for _ in 0..10 {
            kept.take(&me, SECOND).unwrap();
        }
        let refused = kept.take(&me, SECOND).unwrap_err();
        assert_eq!(refused.by, By::Identity);
        assert_eq!(refused.wait, SECOND / 5);
        for _ in 0..1_000 {
            kept.take(&me, SECOND).unwrap_err();
        }
        kept.take(&asking(Some("token:b"), "10.0.0.1", "red"), SECOND)
            .expect("another is another");
        kept.take(&me, SECOND + SECOND / 5)
            .expect("what was refused was not charged");
        kept.take(&me, SECOND + SECOND / 5).unwrap_err();
        for _ in 0..10 {
            kept.take(&me, 60 * SECOND).unwrap();
        }
        kept.take(&me, 60 * SECOND)
            .expect_err("no more is saved up");
    }

    #[test]
    fn a_caller_without_identity_is_its_address_and_a_network_is_one() {
        let mut kept = kept(1, 0, 0);
        for _ in 0..2 {
            kept.take(&asking(None, "10.0.0.1", "red"), 0).unwrap();
        }
        kept.take(&asking(None, "::ffff:10.0.0.1", "red"), 0)
            .expect_err("the same address");
        kept.take(&asking(None, "10.0.0.2", "red"), 0).unwrap();
        for last in 1..=2 {
            let address = format!("fd00::{last}");
            kept.take(&asking(None, &address, "red"), 0).unwrap();
        }
        kept.take(&asking(None, "fd00::3", "red"), 0)
            .expect_err("the same network");
        kept.take(&asking(None, "fd00:0:0:1::3", "red"), 0).unwrap();
    }

    #[test]
    fn who_is_refused_by_one_of_the_three_is_charged_by_none() {
        let mut kept = kept(100, 100, 1);
        for _ in 0..2 {
            kept.take(&asking(Some("a"), "10.0.0.1", "red"), 0).unwrap();
        }
        for _ in 0..10_000 {
            let refused = kept.take(&asking(Some("a"), "10.0.0.1", "red"), 0);
            assert_eq!(refused.unwrap_err().by, By::Namespace);
        }
        kept.take(&asking(Some("a"), "10.0.0.1", "blue"), 0)
            .expect("neither the caller nor its address has used anything up");
    }

    #[test]
    fn a_stranger_uses_up_the_share_of_strangers_of_its_address() {
        let mut kept = kept(0, 1, 0);
        for _ in 0..2 {
            kept.take(&asking(None, "10.0.0.1", "red"), 0).unwrap();
        }
        for who in [None, Some("said, not proved")] {
            let mut stranger = asking(who, "10.0.0.1", "red");
            stranger.proved = false;
            kept.take(&stranger, 0).expect_err("it is used up");
        }
        for who in ["client:a", "client:b"] {
            kept.take(&asking(Some(who), "10.0.0.1", "red"), 0).unwrap();
        }
        kept.take(&asking(Some("client:c"), "10.0.0.1", "red"), 0)
            .expect_err("they share one number");
    }

    #[test]
    fn auth_09_who_comes_through_an_agent_has_a_number_and_the_agent_cannot_make_up_many() {
        let mut kept = kept(0, 1, 0);
        let through = |first: &str| Asking {
            behind: Some(first.parse().unwrap()),
            ..asking(Some("token:a"), "10.0.0.1", "red")
        };
        for first in ["10.9.0.1", "10.9.0.2"] {
            for _ in 0..2 {
                kept.take(&through(first), 0).unwrap();
            }
            let refused = kept.take(&through(first), 0).unwrap_err();
            assert_eq!((refused.by, refused.allowed), (By::Address, 1));
        }
        // No caller is refused for what it says of them.
        for address in ["10.0.0.1", "10.9.0.1"] {
            let own = asking(Some("token:a"), address, "red");
            kept.take(&own, 0).unwrap();
        }
        let taken = (3..200).filter(|n| {
            let first = format!("10.9.1.{n}");
            kept.take(&through(&first), 0).is_ok()
        });
        assert_eq!(taken.count(), 2 * CROWD as usize - 4);
        let refused = kept.take(&through("10.9.2.1"), 0).unwrap_err();
        assert_eq!(refused.allowed, CROWD);
    }

    #[test]
    fn an_agent_makes_up_no_more_strangers_than_who_ask_through_it_may_be() {
        let mut kept = kept(1, 0, 0);
        let taken = (1..200).filter(|n| {
            let first = format!("10.9.1.{n}");
            let stranger = Asking {
                behind: Some(first.parse().unwrap()),
                ..asking(None, "10.0.0.1", "red")
            };
            kept.take(&stranger, 0).is_ok()
        });
        assert_eq!(taken.count(), 2 * CROWD as usize);
        let known = Asking {
            behind: Some("10.9.2.1".parse().unwrap()),
            ..asking(Some("token:a"), "10.0.0.1", "red")
        };
        kept.take(&known, 0).expect("a known caller has its own");
    }

    #[test]
    fn what_is_kept_is_bounded_and_strangers_share_what_is_left() {
        let mut kept = kept(1, 0, 0);
        kept.most = 100;
        for n in 0..100_000 {
            let name = n.to_string();
            let _ = kept.take(&asking(Some(&name), "10.0.0.1", "red"), 0);
            assert!(kept.full.len() <= 100);
        }
        kept.take(&asking(Some("one more"), "10.0.0.1", "red"), 0)
            .expect_err("all who come late have one number");
        let later = 10 * SECOND;
        kept.take(&asking(Some("one more"), "10.0.0.1", "red"), later)
            .expect("those before need not be kept any more");
        assert!(kept.full.len() < 10, "{}", kept.full.len());
    }

    #[test]
    fn a_refusal_says_when_to_come_again_and_no_limit_is_none() {
        let rates = Rates::none();
        let me = asking(Some("a"), "10.0.0.1", "red");
        for _ in 0..10_000 {
            rates.take(&me).unwrap();
        }
        rates.limit(PerSecond {
            identity: 1,
            burst: Duration::from_secs(3_600),
            ..PerSecond::default()
        });
        for _ in 0..3_600 {
            rates.take(&me).unwrap();
        }
        let refused = rates.take(&me).unwrap_err();
        assert_eq!(refused.code, Code::TooManyRequests);
        assert_eq!(refused.retry_after, 1);
        rates.limit(PerSecond::default());
        rates.take(&me).unwrap();
    }
}
