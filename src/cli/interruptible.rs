//! Work that takes long and can be called off.

use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Runs what takes long on a thread of its own; an interrupt sets the flag that it looks at.
pub(super) async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T> {
    let flag = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&flag);
    // An interrupt that comes before this ends the process: nothing has begun.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut work = tokio::task::spawn_blocking(move || work(&own));
    loop {
        tokio::select! {
            done = &mut work => return Ok(done?),
            // A second Ctrl-C ends the process, which costs no more than a generation.
            _ = interrupts.recv() => if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            },
        }
    }
}
