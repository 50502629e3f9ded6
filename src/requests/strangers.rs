//! Denials of strangers: endless requests without an identity do not fill the log.
//!
//! So many denials of one address are written, and so many of all together: addresses are cheap.
//! What is left out is counted by address, and the next record that is written says so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::net::{Asking, PerSecond, Rates};

/// Denials of strangers at one address that are written in a second, once their burst is over.
const OF_ADDRESS: u32 = 1;
/// The same of all strangers together.
const OF_ALL: u32 = 8;
/// As many as come in this time may be written at once.
const BURST: Duration = Duration::from_secs(60);
/// Addresses that are counted apart until they are written down.
const APART: usize = 64;
/// What all others are called.
const OTHERS: &str = "others";
/// Bits of an address of IPv6 that one site has no choice about: it is given the rest.
const SITE: u32 = 48;

/// How many denials were left out, by where they came from.
pub type LeftOut = BTreeMap<String, u64>;

/// Says which denials of strangers are written, and counts the others.
#[derive(Debug)]
pub(super) struct Strangers {
    rates: Arc<Rates>,
    left_out: Arc<Mutex<LeftOut>>,
}

/// What was left out, on its way into a record; dropped before that is written it counts on.
#[derive(Debug, Default)]
pub(super) struct SuppressedCount {
    from: Arc<Mutex<LeftOut>>,
    left_out: LeftOut,
}

impl SuppressedCount {
    /// It is written.
    pub(super) fn written(mut self) {
        self.left_out.clear();
    }

    /// What it is.
    pub(super) fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}

impl Drop for SuppressedCount {
    fn drop(&mut self) {
        if self.left_out.is_empty() {
            return;
        }
        let mut from = self.from.lock();
        for one in std::mem::take(&mut self.left_out) {
            add(&mut from, one);
        }
    }
}

impl Default for Strangers {
    fn default() -> Self {
        let allowed = PerSecond {
            identity: OF_ALL,
            address: OF_ADDRESS,
            burst: BURST,
            ..PerSecond::default()
        };
        Self {
            rates: Rates::new(allowed),
            left_out: Arc::default(),
        }
    }
}

impl Strangers {
    /// Whether one more denial of a stranger at this address is written. The call counts it as one.
    pub(super) fn have_capacity(&self, address: IpAddr) -> bool {
        self.rates.have_capacity(&Asking {
            // All of them count as one.
            identity: Some("strangers"),
            proved: false,
            address: site(address),
            behind: None,
            namespace: None,
        })
    }

    /// Counts a denial that is not written.
    pub(super) fn leave_out(&self, address: IpAddr) {
        metrics::counter!("drover.requests.left_out_total").increment(1);
        let name = match site(address) {
            IpAddr::V6(site) => format!("{site}/{SITE}"),
            IpAddr::V4(address) => address.to_string(),
        };
        add(&mut self.left_out.lock(), (name, 1));
    }

    /// Whether there is anything to report.
    #[cfg(test)]
    pub(super) fn has_left_out(&self) -> bool {
        !self.left_out.lock().is_empty()
    }

    /// What was left out since the last record: that of now says it.
    pub(super) fn take(&self) -> SuppressedCount {
        let left_out = std::mem::take(&mut *self.left_out.lock());
        let from = Arc::clone(&self.left_out);
        SuppressedCount { from, left_out }
    }
}

fn add(left_out: &mut LeftOut, (name, number): (String, u64)) {
    let name = match left_out.len() < APART || left_out.contains_key(&name) {
        true => name,
        false => OTHERS.to_owned(),
    };
    *left_out.entry(name).or_default() += number;
}

/// The block of addresses of which one stranger may use as many as wanted.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let kept = u128::from(address) & !(u128::MAX >> SITE);
            IpAddr::V6(kept.into())
        }
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_09_strangers_have_a_number_by_address_and_one_together() {
        let strangers = Strangers::default();
        let written = |addresses: &mut dyn Iterator<Item = String>| {
            let all = addresses.map(|address| address.parse().unwrap());
            all.filter(|address| strangers.have_capacity(*address))
                .count()
        };
        // However slow the machine is.
        let (of_one, slow) = (60, 200);
        let one = written(&mut (0..300).map(|_| "198.51.100.1".to_owned()));
        assert!((of_one..slow).contains(&one), "{one}");
        // A site of IPv6 counts as one, whichever of its networks is used.
        let site = written(&mut (0..300).map(|n| format!("2001:db8:1:{n:x}::1")));
        assert!((of_one..slow).contains(&site), "{site}");
        let many = (0..5_000).map(|n| format!("10.0.{}.{}", n / 250, n % 250));
        let many = written(&mut { many });
        assert!((100..2_500).contains(&many), "{many}");
    }

    #[test]
    fn what_is_left_out_is_told_by_address_and_what_is_kept_of_it_is_bounded() {
        let strangers = Strangers::default();
        for address in ["198.51.100.1", "2001:db8:1:2::3", "2001:db8:1:4::5"] {
            strangers.leave_out(address.parse().unwrap());
        }
        let wanted = [("198.51.100.1", 1), ("2001:db8:1::/48", 2)];
        let wanted = wanted.map(|(name, number)| (name.to_owned(), number));
        let wanted = LeftOut::from(wanted);
        // The first comes to no record.
        for _ in 0..2 {
            assert_eq!(strangers.take().left_out(), &wanted);
        }
        strangers.take().written();
        assert_eq!(strangers.take().left_out(), &LeftOut::new());
        for last in 0..200 {
            strangers.leave_out(IpAddr::from([10, 0, 0, last]));
        }
        let reported = strangers.take();
        assert_eq!(reported.left_out().len(), APART + 1);
        assert_eq!(reported.left_out().values().sum::<u64>(), 200);
    }
}
