//! Profiles of this process, under the names of Go's `net/http/pprof`.
//!
//! Processor time is sampled by a signal (SIGPROF, 99 times in a second of processor time), which
//! interrupts the running thread at any point. What the handler does there allocates nothing and
//! waits for nothing; where the unwinder or the loader themselves were met, the sample is left out.
//! The signal is off as soon as the time is over or the caller is gone, before names are looked up.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::proto::{Function, Measured, Place, Sample};
use super::{redact, threads};
use crate::error::{Code, Refusal};

/// The time of a profile that names none, seconds.
const USUAL: u64 = 1;
/// The longest profile, seconds.
pub const LONGEST: u64 = 300;
/// Samples in a second: no round number, so that nothing regular is in step with them.
const FREQUENCY: i32 = 99;
/// Nanoseconds between two.
const PERIOD: i64 = 1_000_000_000 / FREQUENCY as i64;
/// Where a thread must not be unwound: it may be unwinding, or loading what that needs.
const LEFT_OUT: [&str; 3] = ["libgcc", "ld-linux", "vdso"];

/// One at a time: there is one signal.
static TURN: Semaphore = Semaphore::const_new(1);

/// The request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ProfileRequest {
    /// `cmdline`, `profile`, `trace`, or the name of one of Go's.
    pub profile: String,
    /// How long to look, seconds; 0 for the usual time.
    pub seconds: u64,
    /// Text rather than the tool's format.
    pub debug: i64,
    /// The client.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    #[serde(rename = "ServerID")]
    pub server_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileResponse {
    /// The bytes.
    #[serde(rename = "Payload", with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// What they are.
    #[serde(rename = "HTTPHeaders")]
    pub headers: BTreeMap<String, String>,
}

impl ProfileResponse {
    fn text(payload: String) -> Self {
        Self {
            payload: payload.into_bytes(),
            headers: headers([("Content-Type", "text/plain; charset=utf-8".to_owned())]),
        }
    }

    fn file(name: &str, payload: Vec<u8>) -> Self {
        Self {
            payload,
            headers: headers([
                ("Content-Type", "application/octet-stream".to_owned()),
                (
                    "Content-Disposition",
                    format!("attachment; filename=\"{name}\""),
                ),
            ]),
        }
    }
}

fn headers<const N: usize>(own: [(&str, String); N]) -> BTreeMap<String, String> {
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let mut all = BTreeMap::from(own);
    all.insert("X-Content-Type-Options".to_owned(), "nosniff".to_owned());
    all
}

/// Makes a profile. Must be called in a runtime.
///
/// # Errors
/// 400 for a time out of bounds; 404 for an unknown name; 429 while another is made; 501 for what
/// drover cannot measure.
pub async fn profile(request: &ProfileRequest) -> Result<ProfileResponse, Refusal> {
    let name = request.profile.as_str();
    match name {
        "" => Err(Refusal::not_found("Invalid method")),
        "cmdline" => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            Ok(ProfileResponse::text(redact::words(words).join("\0")))
        }
        "profile" => cpu(request).await,
        "goroutine" | "threadcreate" => looked_up(name, request.debug).await,
        "trace" => Err(absent(
            "an execution trace is",
            "GET /v1/agent/pprof/profile samples processor time",
        )),
        "heap" | "allocs" => Err(absent(
            &format!("the {name} profile is"),
            "its allocator keeps no samples of what was allocated where; GET /v1/metrics shows how \
             much memory the agent holds",
        )),
        "block" | "mutex" => Err(absent(
            &format!("the {name} profile is"),
            "its locks keep no samples of waiting; GET /v1/agent/pprof/goroutine shows where \
             threads are",
        )),
        name => Err(Refusal::not_found(format!("Unknown profile: {name}"))),
    }
}

fn absent(what: &str, advice: &str) -> Refusal {
    let text = format!("{what} not supported by this version: {advice}");
    Refusal::new(Code::NotImplemented, text)
}

async fn looked_up(name: &str, debug: i64) -> Result<ProfileResponse, Refusal> {
    let name = name.to_owned();
    let made = tokio::task::spawn_blocking(move || match debug {
        0 => ProfileResponse::file(&name, threads::samples().encode()),
        _ => ProfileResponse::text(threads::table(&name)),
    });
    made.await
        .map_err(|error| Refusal::internal(error.to_string()))
}

async fn cpu(request: &ProfileRequest) -> Result<ProfileResponse, Refusal> {
    // Nomad's clients send 0 where no time was given.
    let seconds = match request.seconds {
        0 => USUAL,
        seconds => seconds,
    };
    if seconds > LONGEST {
        let text = format!("seconds must be 1 to {LONGEST}");
        return Err(Refusal::bad_request(text));
    }
    let Ok(turn) = TURN.try_acquire() else {
        let text = "a profile of this agent is being made already: there is one at a time";
        return Err(Refusal::new(Code::TooManyRequests, text));
    };
    let (seconds, debug) = (Duration::from_secs(seconds), request.debug);
    // Dropped with the caller that waits for the profile.
    let (waiting, gone) = mpsc::channel::<()>();
    // The runtime waits for it at its end: a signal that is still on would kill what is run next in
    // the same process. What the thread took goes back with it, which is much.
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let thread = std::thread::Builder::new().name("profile".to_owned());
        let thread = thread.spawn(move || {
            sampled(seconds, &gone).map(|measured| match debug {
                0 => ProfileResponse::file("profile", measured.encode()),
                _ => ProfileResponse::text(measured.folded()),
            })
        });
        match thread.map(std::thread::JoinHandle::join) {
            Ok(Ok(made)) => made.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("it panicked".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    });
    let made = work.await;
    drop(waiting);
    let made = made.unwrap_or_else(|error| Err(error.to_string()));
    made.map_err(|error| Refusal::internal(format!("processor time cannot be sampled: {error}")))
}

/// Samples for a while, or until the caller is gone.
fn sampled(time: Duration, gone: &mpsc::Receiver<()>) -> Result<Measured, pprof::Error> {
    let _forgotten = Forgotten;
    let guard = pprof::ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&LEFT_OUT)
        .build()?;
    if gone.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
        drop(guard);
        return Ok(Measured::default());
    }
    let report = guard.report().build_unresolved()?;
    drop(guard);
    let began = report.timing.start_time.duration_since(UNIX_EPOCH);
    let mut measured = Measured {
        kinds: vec![("samples", "count"), ("cpu", "nanoseconds")],
        period: PERIOD,
        began: began.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)),
        took: report.timing.duration,
        samples: Vec::new(),
    };
    for (frames, count) in report.data {
        let frames = pprof::Frames::from(frames);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        measured.samples.push(Sample {
            thread: frames.thread_name_or_id(),
            stack: frames.frames.iter().map(|frame| place(frame)).collect(),
            values: vec![count, count.saturating_mul(PERIOD)],
        });
    }
    Ok(measured)
}

/// What was read of the program's names is let go of at its end: it takes far more memory than a
/// profile.
struct Forgotten;

impl Drop for Forgotten {
    fn drop(&mut self) {
        backtrace::clear_symbol_cache();
    }
}

fn place(symbols: &[pprof::Symbol]) -> Place {
    let function = |symbol: &pprof::Symbol| Function {
        name: symbol.name(),
        symbol: symbol.sys_name().into_owned(),
        file: symbol.filename().into_owned(),
    };
    symbols
        .iter()
        .map(|symbol| (function(symbol), symbol.lineno()))
        .collect()
}

#[cfg(test)]
#[path = "profile_test.rs"]
mod tests;
