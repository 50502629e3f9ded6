//! Commands that users run beside a task: what goes to them and what comes from them, in Nomad's
//! frames, and the way between a process and the holders of the other ends.

use std::sync::Arc;
use std::time::Duration;

use drover_events::gojson::Base64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::executor::exec::{Channel, Guest};

/// Bytes of output that go out at once, at most.
const PIECE: usize = 32 << 10;
/// How long after the end of a command its output is waited for: something that it left behind may
/// hold it open for as long as it likes.
const DRAIN: Duration = Duration::from_secs(1);
/// How much output is still taken where it never pauses, bytes; more than any pipe holds.
const LEFT: usize = 2 << 20;
/// What ends the input of a reader of a terminal.
const END_OF_INPUT: u8 = 4;

/// What goes to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecIn {
    /// Bytes for it to read.
    Stdin(Vec<u8>),
    /// There is no more input.
    CloseStdin,
    /// The size of its terminal from now on, in characters.
    Resize {
        /// Lines.
        height: u16,
        /// Columns.
        width: u16,
    },
    /// The other end is there.
    Heartbeat,
}

/// What comes from a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOut {
    /// What it wrote; on a terminal that is all.
    Stdout(Vec<u8>),
    /// There is no more output.
    StdoutClosed,
    /// What it wrote of errors.
    Stderr(Vec<u8>),
    /// There is no more error output.
    StderrClosed,
    /// It ended: nothing comes after this.
    Exited {
        /// Its exit code; 128 and the number of the signal that ended it.
        code: i32,
    },
    /// The command runs, and says nothing.
    Heartbeat,
}

/// A command line, and whether it is to run on a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecCommand {
    /// Program and arguments.
    pub command: Vec<String>,
    /// On a terminal of its own.
    pub tty: bool,
}

/// The other ends of a command's input and output. It is killed when its output is no longer taken
/// by a reader; when nothing more can come, its input ends.
#[derive(Debug)]
pub struct Wires {
    /// What goes to it.
    pub input: mpsc::Receiver<ExecIn>,
    /// What comes from it.
    pub output: mpsc::Sender<ExecOut>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Bytes of a stream, or its end.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stream {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Base64>,
    #[serde(skip_serializing_if = "is_zero")]
    close: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Size {
    #[serde(skip_serializing_if = "is_zero")]
    height: i32,
    #[serde(skip_serializing_if = "is_zero")]
    width: i32,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct InFrame {
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<Stream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tty_size: Option<Size>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ExecOutcome {
    #[serde(skip_serializing_if = "is_zero")]
    exit_code: i32,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct OutFrame {
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<Stream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<Stream>,
    #[serde(skip_serializing_if = "is_zero")]
    exited: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ExecOutcome>,
}

fn some(data: &[u8]) -> Option<Stream> {
    Some(Stream {
        data: Some(Base64::from(data)),
        close: false,
    })
}

const fn closed() -> Option<Stream> {
    Some(Stream {
        data: None,
        close: true,
    })
}

impl ExecIn {
    /// What a frame holds: mostly one thing.
    ///
    /// # Errors
    /// It is no frame.
    pub fn of(frame: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        serde_json::from_slice(frame).map(Self::all)
    }

    fn all(frame: InFrame) -> Vec<Self> {
        let mut all = Vec::with_capacity(1);
        if let Some(size) = frame.tty_size {
            let side = |n: i32| u16::try_from(n.max(0)).unwrap_or(u16::MAX);
            let (height, width) = (side(size.height), side(size.width));
            all.push(Self::Resize { height, width });
        }
        if let Some(stdin) = frame.stdin {
            let data = stdin.data.map(Base64::into_vec);
            all.extend(data.filter(|data| !data.is_empty()).map(Self::Stdin));
            all.extend(stdin.close.then_some(Self::CloseStdin));
        }
        if all.is_empty() {
            all.push(Self::Heartbeat);
        }
        all
    }
}

impl Serialize for ExecIn {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut frame = InFrame::default();
        match self {
            Self::Stdin(data) => frame.stdin = some(data),
            Self::CloseStdin => frame.stdin = closed(),
            Self::Resize { height, width } => {
                let (height, width) = (i32::from(*height), i32::from(*width));
                frame.tty_size = Some(Size { height, width });
            }
            Self::Heartbeat => {}
        }
        frame.serialize(out)
    }
}

impl<'de> Deserialize<'de> for ExecIn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut all = Self::all(InFrame::deserialize(from)?);
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Ok(one),
            _ => Err(D::Error::custom("more than one thing in a frame")),
        }
    }
}

impl Serialize for ExecOut {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut frame = OutFrame::default();
        match self {
            Self::Stdout(data) => frame.stdout = some(data),
            Self::StdoutClosed => frame.stdout = closed(),
            Self::Stderr(data) => frame.stderr = some(data),
            Self::StderrClosed => frame.stderr = closed(),
            Self::Exited { code } => {
                frame.exited = true;
                frame.result = Some(ExecOutcome { exit_code: *code });
            }
            Self::Heartbeat => {}
        }
        frame.serialize(out)
    }
}

impl<'de> Deserialize<'de> for ExecOut {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let frame = OutFrame::deserialize(from)?;
        let data = |stream: Stream| stream.data.map(Base64::into_vec).unwrap_or_default();
        Ok(match (frame.stdout, frame.stderr) {
            (Some(stream), _) if stream.close => Self::StdoutClosed,
            (Some(stream), _) => Self::Stdout(data(stream)),
            (None, Some(stream)) if stream.close => Self::StderrClosed,
            (None, Some(stream)) => Self::Stderr(data(stream)),
            (None, None) if frame.exited => Self::Exited {
                code: frame.result.unwrap_or_default().exit_code,
            },
            (None, None) => Self::Heartbeat,
        })
    }
}

/// Carries everything between a command and the other ends, until it has ended or what it writes
/// is no longer taken; then it is killed.
pub(super) async fn attend(guest: Guest, wires: Wires) {
    let Wires { input, output } = wires;
    tokio::select! {
        () = carry(guest, input, &output) => {}
        () = output.closed() => {}
    }
}

async fn carry(guest: Guest, input: mpsc::Receiver<ExecIn>, output: &mpsc::Sender<ExecOut>) {
    let Guest {
        input: to,
        outputs,
        mut life,
    } = guest;
    let to = Arc::new(to);
    let terminal = outputs.is_none().then(|| Arc::clone(&to));
    let (over, end) = watch::channel(None::<Instant>);
    let ended = async {
        let code = life.ended().await;
        over.send_replace(Some(Instant::now()));
        code
    };
    let passed = async |from: &Channel, of: fn(Vec<u8>) -> ExecOut, closed: ExecOut| {
        pass(from, of, end.clone(), output).await;
        let _ = output.send(closed).await;
    };
    let all = async {
        let code = match (&outputs, &terminal) {
            (Some([out, err]), _) => {
                let out = passed(out, ExecOut::Stdout, ExecOut::StdoutClosed);
                let err = passed(err, ExecOut::Stderr, ExecOut::StderrClosed);
                tokio::join!(ended, out, err).0
            }
            (None, Some(terminal)) => {
                let out = passed(terminal, ExecOut::Stdout, ExecOut::StdoutClosed);
                tokio::join!(ended, out).0
            }
            (None, None) => ended.await,
        };
        let _ = output.send(ExecOut::Exited { code }).await;
    };
    let fed = async {
        feed(to, terminal.is_some(), input).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = all => {}
        () = fed => {}
    }
}

/// Gives a command what comes for it, as fast as it takes it. What it does not want is thrown away.
async fn feed(to: Arc<Channel>, is_terminal: bool, mut input: mpsc::Receiver<ExecIn>) {
    let mut to = Some(to);
    let (mut in_line, mut over) = (false, false);
    loop {
        let Some(one) = input
            .recv()
            .await
            .or_else(|| to.is_some().then_some(ExecIn::CloseStdin))
        else {
            return;
        };
        let Some(channel) = &to else { continue };
        let taken = match one {
            ExecIn::Stdin(_) if over => Ok(()),
            ExecIn::Stdin(data) => {
                in_line = data.last().is_some_and(|last| *last != b'\n');
                channel.write_all(&data).await
            }
            // Within a line the first only sends the line off.
            ExecIn::CloseStdin if is_terminal => {
                let end = [END_OF_INPUT; 2];
                let end = match over {
                    true => &[][..],
                    false => &end[usize::from(!in_line)..],
                };
                over = true;
                // Its size may still change.
                let ended = input.is_closed() && input.is_empty();
                match channel.write_all(end).await {
                    Ok(()) if !ended => Ok(()),
                    _ => return,
                }
            }
            ExecIn::CloseStdin => Err(std::io::ErrorKind::BrokenPipe.into()),
            ExecIn::Resize { height, width } => {
                if is_terminal {
                    channel.resize(height, width);
                }
                Ok(())
            }
            ExecIn::Heartbeat => Ok(()),
        };
        if taken.is_err() {
            to = None;
        }
    }
}

/// Passes on what a command writes, as fast as it is taken: to the end, or until the command has
/// ended and what is left of its output was there long enough.
async fn pass(
    from: &Channel,
    of: fn(Vec<u8>) -> ExecOut,
    mut end: watch::Receiver<Option<Instant>>,
    output: &mpsc::Sender<ExecOut>,
) {
    let mut buf = vec![0; PIECE];
    let mut left = LEFT;
    loop {
        let overdue = async {
            let at = end.wait_for(Option::is_some).await.ok().and_then(|at| *at);
            match at {
                Some(at) => tokio::time::sleep_until(at + DRAIN).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            biased;
            read = from.read(&mut buf) => read,
            () = overdue => return,
        };
        let n = match read {
            Ok(n @ 1..) => n,
            _ => return,
        };
        if output.send(of(buf[..n].to_vec())).await.is_err() {
            return;
        }
        if end.borrow().is_some() {
            left = left.saturating_sub(n);
            if left == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "exec_test.rs"]
mod tests;
