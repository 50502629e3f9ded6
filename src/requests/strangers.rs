//! Denials of strangers: whoever is nobody and asks without end fills no log by it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::net::{PerSecond, Rates};

/// Denials of strangers at one address that are written in a second, once their burst is over.
const EACH_SECOND: u32 = 1;
/// As many as come in this time may be written at once.
const BURST: Duration = Duration::from_secs(60);

/// Says which denials of strangers are written, so many of one address, and counts the others.
#[derive(Debug)]
pub struct Strangers {
    rates: Arc<Rates>,
    left_out: AtomicU64,
}

impl Default for Strangers {
    fn default() -> Self {
        Self {
            rates: Rates::new(PerSecond {
                address: EACH_SECOND,
                burst: BURST,
                ..PerSecond::default()
            }),
            left_out: AtomicU64::default(),
        }
    }
}

impl Strangers {
    /// Whether a denial of a stranger at this address is to be written: how many were left out
    /// since one was written, of whatever address. None: it is left out.
    pub fn written_of(&self, address: IpAddr) -> Option<u64> {
        if self.rates.has_room_of_address(address) {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("drover.requests.left_out_total").increment(1);
        None
    }
}
