//! Waiting for a condition.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::limit;

/// The usual deadline: long, since a loaded machine is slow and a condition that holds ends the
/// wait.
pub const LONG: Duration = Duration::from_secs(60);

/// The pause between two checks of a test whose runtime continues.
const PAUSE: Duration = Duration::from_millis(5);

/// As [`wait_for`], for a test whose own runtime has to continue meanwhile.
///
/// # Errors
/// When `limit` has passed.
pub async fn eventually<T, E: Display>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    eventually_async(what, limit, async || ask()).await
}

/// As [`eventually`], for a question that is itself waited for.
///
/// # Errors
/// When `limit` has passed.
pub async fn eventually_async<T, E: Display>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    limit::this_test();
    let start = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(refusal) if start.elapsed() > limit => {
                bail!("waited {limit:?} for {what}; last: {refusal}");
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The answer of a check whether something is so.
///
/// # Errors
/// It is not.
pub fn so(is: bool) -> Result<(), &'static str> {
    is.then_some(()).ok_or("not yet")
}

/// As [`eventually`], for what is so or is not yet.
///
/// # Panics
/// When [`LONG`] has passed.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    if let Err(problem) = eventually(what, LONG, || so(is_so())).await {
        panic!("{problem}");
    }
}

/// Between two looks for a moment that may pass at once.
const GLANCE: Duration = Duration::from_micros(100);

/// Looks ten thousand times a second, for moments that pass; answers whether it came before what
/// it is looked for in was over.
pub fn moment(mut reached: impl FnMut() -> bool, mut over: impl FnMut() -> bool) -> bool {
    limit::this_test();
    loop {
        if reached() {
            return true;
        }
        if over() {
            return reached();
        }
        thread::sleep(GLANCE);
    }
}

/// Checks until there is an answer; the last refusal is part of the error when time is up.
///
/// # Errors
/// When `limit` has passed.
pub fn wait_for<T, E: Display>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    limit::this_test();
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(refusal) if start.elapsed() > limit => {
                bail!("waited {limit:?} for {what}; last: {refusal}");
            }
            Err(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
