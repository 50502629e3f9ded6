//! `alloc exec`

use super::super::client::{Client, encode};
use super::super::conn::Conn;
use super::super::show::short;
use super::super::socket::Socket;
use super::super::terminal::{self, Escape, Raw};
use super::pick::{NamedAlloc, pick_task};
use crate::client::endpoints::exec::{ExecIn, ExecOut};
use anyhow::{Context, Result, anyhow, bail};
use drover_events::model::Allocation;
use futures_util::{SinkExt, StreamExt};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

/// Bytes of input that go out at once, at most.
const PIECE: usize = 32 << 10;
/// Pieces that may wait, each way.
const WINDOW: usize = 8;
/// How often the agent is notified that the session is alive.
const BEAT: Duration = Duration::from_secs(10);
/// After how long an agent that says nothing is taken for gone; it says something every few
/// seconds.
const SILENCE: Duration = Duration::from_secs(25);
/// How long the last words may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Flags of `alloc exec`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc exec 8ba85cef /bin/sh                 a shell, on a terminal where this is one
  drover alloc exec -task server 8ba85cef ps aux
  drover alloc exec -job web env
  drover alloc exec -t=false 8ba85cef tee in.txt < in.txt
  drover alloc exec -i=false -t=false 8ba85cef cat out.txt > out.txt

The command runs with the task's user, environment, directory and limits, and ends with it; drover
exits with its exit code. On a terminal, the escape character and a dot at the beginning of a line
leave it (~.); the escape character twice is the character.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it; with -job, the job's ID
    allocation: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Name a job in place of an allocation
    #[arg(long)]
    job: bool,
    /// Only allocations of this group (with -job)
    #[arg(long)]
    group: Option<String>,
    /// The task, needed where an allocation has several
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
    /// Send what is typed or piped in [default: true]
    #[arg(
        short = 'i',
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = switch
    )]
    interactive: Option<bool>,
    /// Run it on a terminal [default: whether this is one]
    #[arg(
        short = 't',
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = switch
    )]
    tty: Option<bool>,
    /// The escape character, or none
    #[arg(short = 'e', value_name = "CHAR", default_value = "~")]
    escape: String,
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("it is true or false".to_owned()),
    }
}

fn escape(text: &str) -> Result<Option<u8>> {
    match text.as_bytes() {
        b"none" => Ok(None),
        [one] => Ok(Some(*one)),
        _ => bail!("-e requires 'none' or a single character"),
    }
}

/// Runs a command beside a task.
pub(in crate::cli) async fn run(args: Args) -> Result<u8> {
    let escape = escape(&args.escape)?;
    let interactive = args.interactive.unwrap_or(true);
    let tty = args
        .tty
        .unwrap_or_else(|| interactive && terminal::is_there());
    if tty && !interactive {
        bail!("-i must be enabled if running with tty");
    }
    let client = args.conn.client()?;
    let named = NamedAlloc {
        name: &args.allocation,
        is_job: args.job,
        group: args.group.as_deref(),
    };
    let alloc = named.allocation(&client).await?;
    let shown = short(&alloc.id, false);
    let task = pick_task(&alloc, args.task.as_deref(), &shown)?;
    let failed = "failed to exec into task";
    let socket = open(&client, &alloc, &task, &args.command, tty).await;
    let socket = socket.context(failed)?;
    let talk = Talk {
        tty,
        interactive,
        escape: escape.filter(|_| tty),
    };
    let code = talk.over(socket).await.context(failed)?;
    Ok(code)
}

async fn open(
    client: &Client,
    alloc: &Allocation,
    task: &str,
    command: &[String],
    tty: bool,
) -> Result<Socket> {
    let path = format!("/v1/client/allocation/{}/exec", encode(&alloc.id));
    let command = serde_json::to_string(command)?;
    let query = [
        ("task", task),
        ("command", command.as_str()),
        ("tty", if tty { "true" } else { "false" }),
        ("namespace", alloc.namespace.as_str()),
    ];
    client.socket(&path, &query).await
}

/// How a session is held.
struct Talk {
    tty: bool,
    interactive: bool,
    escape: Option<u8>,
}

impl Talk {
    /// Holds it to its end; the exit code.
    async fn over(self, socket: Socket) -> Result<u8> {
        let mut signals = Signals::new()?;
        // Dropped on every way out of here.
        let raw = self.tty.then(Raw::take).flatten();
        let (to, frames) = mpsc::channel(WINDOW);
        let left = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        if self.tty {
            tasks.spawn(sizes(to.clone())?);
        }
        match self.interactive {
            true => typed(to, Escape::new(self.escape), Arc::clone(&left)),
            false => to.send(ExecIn::CloseStdin).await?,
        }
        let (mut sink, mut stream) = socket.split();
        let (output, written) = printer();
        let code = tokio::select! {
            code = receive(&mut stream, &output) => code,
            error = send(&mut sink, frames) => Err(error),
            () = left.notified() => Ok(1),
            number = signals.next() => Ok(128 + number),
        };
        tasks.abort_all();
        let bye = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = timeout(FAREWELL, sink.send(Message::Close(Some(bye)))).await;
        drop(output);
        // What came is printed, if a reader takes it.
        match &code {
            Ok(_) => written.await?,
            Err(_) => {
                let _ = timeout(FAREWELL, written).await;
            }
        }
        drop(raw);
        code
    }
}

/// What would end this process without the terminal being put right.
struct Signals([tokio::signal::unix::Signal; 3]);

impl Signals {
    fn new() -> Result<Self> {
        let one = |kind| signal(kind).context("catching signals");
        Ok(Self([
            one(SignalKind::interrupt())?,
            one(SignalKind::terminate())?,
            one(SignalKind::hangup())?,
        ]))
    }

    /// The number of the first that comes.
    async fn next(&mut self) -> u8 {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
            _ = hangup.recv() => 1,
        }
    }
}

/// Reports the size of the terminal, now and whenever it changes.
fn sizes(to: mpsc::Sender<ExecIn>) -> Result<impl Future<Output = ()> + Send + 'static> {
    let mut changed = signal(SignalKind::window_change()).context("catching signals")?;
    Ok(async move {
        loop {
            if let Some((height, width)) = terminal::size()
                && to.send(ExecIn::Resize { height, width }).await.is_err()
            {
                return;
            }
            if changed.recv().await.is_none() {
                return;
            }
        }
    })
}

/// Sends what is typed or piped in. It has a thread of its own, which the command does not wait
/// for: a read of a terminal ends only when the user types.
fn typed(to: mpsc::Sender<ExecIn>, mut escape: Escape, left: Arc<Notify>) {
    std::thread::spawn(move || {
        let mut buf = vec![0; PIECE];
        let mut stdin = std::io::stdin().lock();
        loop {
            let n = match stdin.read(&mut buf) {
                Ok(n @ 1..) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                _ => break,
            };
            let (bytes, leaves) = escape.pass(&buf[..n]);
            if !bytes.is_empty() && to.blocking_send(ExecIn::Stdin(bytes)).is_err() {
                return;
            }
            if leaves {
                return left.notify_one();
            }
        }
        let _ = to.blocking_send(ExecIn::CloseStdin);
    });
}

/// A piece of output: of errors or not.
type Piece = (bool, Vec<u8>);

/// Prints on a thread of its own: a reader that does not read holds up nothing else. The future
/// that is returned is ready when all is printed.
fn printer() -> (mpsc::Sender<Piece>, impl Future<Output = Result<()>>) {
    let (to, mut pieces) = mpsc::channel::<Piece>(WINDOW);
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut print = || {
            while let Some((is_error, bytes)) = pieces.blocking_recv() {
                let mut out: Box<dyn Write> = match is_error {
                    true => Box::new(std::io::stderr().lock()),
                    false => Box::new(std::io::stdout().lock()),
                };
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Ok::<_, std::io::Error>(())
        };
        let _ = done.send(print());
    });
    let ended = async move {
        let printed = ended.await.context("printing")?;
        printed.context("printing")
    };
    (to, ended)
}

/// Sends frames, and now and then that the session is alive; ends with an error only.
async fn send<S>(sink: &mut S, mut frames: mpsc::Receiver<ExecIn>) -> anyhow::Error
where
    S: futures_util::Sink<Message> + Unpin,
    S::Error: std::error::Error + Send + Sync + 'static,
{
    let mut beat = interval(BEAT);
    let mut open = true;
    loop {
        let frame = tokio::select! {
            frame = frames.recv(), if open => match frame {
                Some(frame) => frame,
                None => {
                    open = false;
                    continue;
                }
            },
            _ = beat.tick() => ExecIn::Heartbeat,
        };
        let text = serde_json::to_string(&frame).unwrap_or_default();
        if let Err(error) = sink.send(Message::text(text)).await {
            // Why it was ended is read on the other side, if a reason came.
            tokio::time::sleep(FAREWELL).await;
            return anyhow::Error::new(error).context("the connection was lost");
        }
    }
}

/// Prints what comes; the exit code.
async fn receive<S, E>(stream: &mut S, output: &mpsc::Sender<Piece>) -> Result<u8>
where
    S: futures_util::Stream<Item = Result<Message, E>> + Unpin,
    E: std::error::Error + Send + Sync + 'static,
{
    let lost = |why: &str| anyhow!("websocket closed before receiving exit code: {why}");
    loop {
        let message = match timeout(SILENCE, stream.next()).await {
            Err(_) => return Err(lost("the agent says nothing any more")),
            Ok(None) => return Err(lost("the connection ended")),
            Ok(Some(message)) => message.map_err(|error| lost(&error.to_string()))?,
        };
        let data = match message {
            Message::Close(Some(frame)) if !frame.reason.is_empty() => {
                return Err(anyhow!("{}", frame.reason));
            }
            Message::Close(frame) => {
                let code = frame.map_or(1005, |frame| u16::from(frame.code));
                return Err(lost(&format!("code {code}")));
            }
            Message::Text(_) | Message::Binary(_) => message.into_data(),
            _ => continue,
        };
        let piece = match serde_json::from_slice(&data).context("reading a frame")? {
            ExecOut::Stdout(data) => (false, data),
            ExecOut::Stderr(data) => (true, data),
            // What the shell shows of a code is its last byte.
            ExecOut::Exited { code } => return Ok(code.to_le_bytes()[0]),
            ExecOut::StdoutClosed | ExecOut::StderrClosed | ExecOut::Heartbeat => continue,
        };
        if output.send(piece).await.is_err() {
            bail!("nothing reads the output any more");
        }
    }
}
