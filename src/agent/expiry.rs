//! Certificates that end soon, reported in time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::net::tls::Loader;

/// How often they are reported.
const DAILY: Duration = Duration::from_secs(24 * 3600);

/// Logs which certificates end soon.
pub(super) fn report(tls: &Loader) {
    let now = jiff::Timestamp::now().as_second();
    for expiry in tls.expiries() {
        if let Some(warning) = expiry.warning(now) {
            tracing::warn!("{warning}");
        }
    }
}

/// Reports them every day.
pub(super) async fn watch(tls: Arc<Loader>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(DAILY) => report(&tls),
            () = stop.cancelled() => return,
        }
    }
}
