//! The agent's log while it is written, at a level of the listener's own.
//!
//! The process's subscriber carries [`layer`], one layer for each form of a line. A layer is shut
//! off, at every place that logs, as long as its form has no listeners; otherwise it writes each
//! line once and hands it to the listeners that want its level. A listener's queue is bounded:
//! lines that do not fit are counted, and the number stands in their place.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

use crate::client::endpoints::FileFrame;
use crate::error::{Code, Refusal};

/// How many may listen at once.
pub const MOST: usize = 64;
/// Lines that wait for a slow listener.
const LINES: usize = 1_024;
/// Bytes that wait for one.
const BYTES: usize = 512 << 10;
/// The longest piece, bytes.
const PIECE: usize = 64 << 10;
/// How often a silent stream says that it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// Pieces that wait to be sent on.
const WINDOW: usize = 8;

/// Which part of the log is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MonitorRequest {
    /// The least level; INFO where it is empty.
    pub log_level: String,
    /// JSON lines instead of text.
    #[serde(rename = "LogJSON")]
    pub log_json: bool,
    /// Source file and line in each record.
    pub log_include_location: bool,
    /// The lines alone, not wrapped in JSON.
    #[serde(rename = "PlainText")]
    pub plain: bool,
    /// The client whose log it is.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The server whose log it is.
    #[serde(rename = "ServerID")]
    pub server_id: String,
}

impl MonitorRequest {
    /// The least level that is shown.
    ///
    /// # Errors
    /// 400 for a name that is not a level.
    pub fn level(&self) -> Result<LevelFilter, Refusal> {
        let unknown = |name| Refusal::bad_request(format!("Unknown log level: {name}"));
        match self.log_level.as_str() {
            "" => Ok(LevelFilter::INFO),
            name => level(name).ok_or_else(|| unknown(name)),
        }
    }
}

/// The level of a name, as the configuration and requests write it.
pub fn level(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_uppercase().as_str() {
        "TRACE" => LevelFilter::TRACE,
        "DEBUG" => LevelFilter::DEBUG,
        "INFO" => LevelFilter::INFO,
        "WARN" | "WARNING" => LevelFilter::WARN,
        "ERROR" | "ERR" => LevelFilter::ERROR,
        "OFF" => LevelFilter::OFF,
        _ => return None,
    })
}

/// Listens from now on. The listener is gone when the receiver is. Must be called in a runtime.
///
/// # Errors
/// 400 for a name that is not a level; 429 where too many listen.
pub fn listen(request: &MonitorRequest) -> Result<mpsc::Receiver<FileFrame>, Refusal> {
    let wanted = request.level()?;
    let form = LineForm {
        json: request.log_json,
        location: request.log_include_location,
    };
    let listener = Listening::begin(form, wanted)?;
    let (tx, rx) = mpsc::channel(WINDOW);
    tokio::spawn(pump(listener, tx));
    Ok(rx)
}

/// How many listen.
pub fn listeners() -> usize {
    HUB.listeners.read().len()
}

/// Sends what was logged, or that there was nothing for a while, until the receiver is gone.
async fn pump(listening: Listening, tx: mpsc::Sender<FileFrame>) {
    loop {
        let woken = tokio::select! {
            () = tx.closed() => return,
            woken = tokio::time::timeout(ALIVE, listening.0.some.notified()) => woken,
        };
        if woken.is_err() && tx.send(FileFrame::default()).await.is_err() {
            return;
        }
        while let Some(data) = listening.0.take() {
            let frame = FileFrame {
                data,
                ..FileFrame::default()
            };
            if tx.send(frame).await.is_err() {
                return;
            }
        }
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LineForm {
    json: bool,
    location: bool,
}

impl LineForm {
    const fn index(self) -> usize {
        (self.json as usize) << 1 | self.location as usize
    }
}

/// All listeners of this process, which has one log.
struct Hub {
    listeners: RwLock<Vec<Arc<Listener>>>,
    taken: AtomicUsize,
    /// The most talkative level that a listener wants, by form.
    levels: [AtomicU8; 4],
}

static HUB: Hub = Hub {
    listeners: RwLock::new(Vec::new()),
    taken: AtomicUsize::new(0),
    levels: [const { AtomicU8::new(0) }; 4],
};

/// A level as a number: 0 for none.
fn rank(level: LevelFilter) -> u8 {
    match level.into_level() {
        None => 0,
        Some(tracing::Level::ERROR) => 1,
        Some(tracing::Level::WARN) => 2,
        Some(tracing::Level::INFO) => 3,
        Some(tracing::Level::DEBUG) => 4,
        Some(tracing::Level::TRACE) => 5,
    }
}

fn of_rank(rank: u8) -> LevelFilter {
    match rank {
        0 => LevelFilter::OFF,
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// What of a record decides which listeners get it.
#[derive(Clone, Copy)]
struct Weight {
    level: tracing::Level,
    /// The most talkative level that is shown of where it comes from: of the libraries below only
    /// warnings, as in the log itself.
    most: LevelFilter,
}

impl Weight {
    fn of(metadata: &Metadata<'_>) -> Self {
        Self {
            level: *metadata.level(),
            most: match metadata.target() {
                own if own.starts_with("drover") => LevelFilter::TRACE,
                raft if raft.starts_with("openraft") => LevelFilter::ERROR,
                _ => LevelFilter::WARN,
            },
        }
    }

    /// Whether a listener that wants this level gets it.
    fn is_shown(self, wanted: LevelFilter) -> bool {
        self.level <= wanted.min(self.most)
    }
}

impl Hub {
    /// What a listener wants of a form.
    fn wanted(&self, form: LineForm) -> LevelFilter {
        of_rank(self.levels[form.index()].load(Ordering::Relaxed))
    }

    /// Changes the listeners, and notifies the places that log.
    fn change(&self, alter: impl FnOnce(&mut Vec<Arc<Listener>>)) {
        {
            let mut listeners = self.listeners.write();
            alter(&mut listeners);
            for (index, level) in self.levels.iter().enumerate() {
                let of_form = listeners.iter().filter(|one| one.form.index() == index);
                let most = of_form.map(|one| rank(one.level)).max();
                level.store(most.unwrap_or(0), Ordering::Relaxed);
            }
        }
        tracing::callsite::rebuild_interest_cache();
    }

    fn report(&self, form: LineForm, weight: Weight, line: &[u8]) {
        let listeners = self.listeners.read();
        let of_form = listeners.iter().filter(|one| one.form == form);
        for one in of_form.filter(|one| weight.is_shown(one.level)) {
            one.put(line);
        }
    }
}

struct Listener {
    form: LineForm,
    level: LevelFilter,
    queue: Mutex<Queue>,
    some: Notify,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    lost: u64,
}

impl Listener {
    /// Never waits: what does not fit is lost.
    fn put(&self, line: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.lines.len() >= LINES || queue.bytes + line.len() > BYTES {
            queue.lost += 1;
            return;
        }
        if let Some(reported) = self.reported_lost(&mut queue) {
            queue.push(reported);
        }
        queue.push(line.to_vec());
        drop(queue);
        self.some.notify_one();
    }

    /// The next piece; a line that says how many are missing stands where they are.
    fn take(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue.lock();
        let mut piece = Vec::new();
        while let Some(line) = queue.lines.front() {
            let space = PIECE.saturating_sub(piece.len());
            if line.len() <= space {
                piece.extend_from_slice(line);
                queue.bytes -= line.len();
                queue.lines.pop_front();
                continue;
            }
            if piece.is_empty() {
                // A line that is longer than a piece comes in several.
                let queue = &mut *queue;
                let line = queue.lines.front_mut()?;
                piece.extend(line.drain(..PIECE));
                queue.bytes -= PIECE;
            }
            return Some(piece);
        }
        if let Some(reported) = self.reported_lost(&mut queue) {
            piece.extend_from_slice(&reported);
        }
        Some(piece).filter(|piece| !piece.is_empty())
    }

    fn reported_lost(&self, queue: &mut Queue) -> Option<Vec<u8>> {
        let lost = std::mem::take(&mut queue.lost);
        if lost == 0 {
            return None;
        }
        let text = match lost {
            1 => "1 line is missing here: it came faster than it was taken".to_owned(),
            _ => format!("{lost} lines are missing here: they came faster than they were taken"),
        };
        let now = jiff::Timestamp::now();
        let line = match self.form.json {
            true => serde_json::json!({
                "timestamp": format!("{now:.6}"), "level": "WARN",
                "fields": { "message": text, "lost": lost }, "target": module_path!(),
            })
            .to_string(),
            false => format!("{now:.6}  WARN {}: {text}", module_path!()),
        };
        Some(format!("{line}\n").into_bytes())
    }
}

impl Queue {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }
}

/// A listener for as long as this is there.
struct Listening(Arc<Listener>);

impl Listening {
    fn begin(form: LineForm, level: LevelFilter) -> Result<Self, Refusal> {
        let more = |taken: usize| (taken < MOST).then_some(taken + 1);
        let taken = HUB
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if taken.is_err() {
            let text = format!("{MOST} listen to the log of this agent already, which is the most");
            return Err(Refusal::new(Code::TooManyRequests, text));
        }
        let listener = Arc::new(Listener {
            form,
            level,
            queue: Mutex::default(),
            some: Notify::new(),
        });
        HUB.change(|all| all.push(Arc::clone(&listener)));
        Ok(Self(listener))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // First the capacity, so that where no listener is seen all of the capacity is free.
        HUB.taken.fetch_sub(1, Ordering::Relaxed);
        HUB.change(|all| all.retain(|one| !Arc::ptr_eq(one, &self.0)));
    }
}

/// What the process's subscriber needs so that its log can be listened to.
pub fn layer<S>() -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let form = |json, location| LineForm { json, location };
    of_form(form(false, false))
        .and_then(of_form(form(false, true)))
        .and_then(of_form(form(true, false)))
        .and_then(of_form(form(true, true)))
}

fn of_form<S>(form: LineForm) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = fmt::layer()
        .with_file(form.location)
        .with_line_number(form.location)
        .with_ansi(false)
        .with_writer(Lines(form));
    match form.json {
        true => layer.json().with_filter(MonitorFilter(form)).boxed(),
        false => layer.with_filter(MonitorFilter(form)).boxed(),
    }
}

/// Lets through what a listener wants.
struct MonitorFilter(LineForm);

impl<S> Filter<S> for MonitorFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Weight::of(metadata).is_shown(HUB.wanted(self.0))
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match Weight::of(metadata).is_shown(HUB.wanted(self.0)) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(HUB.wanted(self.0))
    }
}

/// Hands the lines of a form to its listeners.
struct Lines(LineForm);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = RecordWriter;

    fn make_writer(&'a self) -> RecordWriter {
        let (level, most) = (tracing::Level::ERROR, LevelFilter::ERROR);
        RecordWriter(self.0, Weight { level, most })
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> RecordWriter {
        RecordWriter(self.0, Weight::of(metadata))
    }
}

/// Takes one record, which comes whole.
struct RecordWriter(LineForm, Weight);

impl io::Write for RecordWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        HUB.report(self.0, self.1, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "monitor_test.rs"]
pub(crate) mod tests;
