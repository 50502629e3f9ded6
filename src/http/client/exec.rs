//! `GET /v1/client/allocation/:id/exec`: a command beside a task, over a WebSocket.
//!
//! A caller that may not is refused before the upgrade; where the token comes in the first frame,
//! by the code of the close frame. Nothing runs before. The command ends when its caller leaves,
//! falls silent or loses the right, and when the server stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::response::Response;
use drover_projections::tables::allocs;
use futures_util::{SinkExt, Stream, StreamExt};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::{Bytes, Error};

use super::ran::{self, Ready};
use super::{target_of, unknown};
use crate::acl::{Acl, NamespaceCapability as Ns};
use crate::client::agent::Client;
use crate::client::drivers;
use crate::client::endpoints::exec::{self, ExecIn, ExecOut, ExecRequest};
use crate::error::{Code, Refusal};
use crate::http::answer::Answer;
use crate::http::entrance::{ServerEntrance, Takes, taken_in};
use crate::http::front::{self, FrontCall, Incoming};
use crate::http::gate::{self, Access, Late, Write};
use crate::http::list::storage;
use crate::http::request::Request;
use crate::http::socket::{self, Socket, Upgrade};
use crate::http::state::Api;
use crate::http::stream::right;
use crate::http::target::Target;
use crate::http::{auth, query, requests};
use crate::identity::Identity;
use crate::requests::{Ran, Session, Ticket};
use crate::table_reads::glance;

/// Pieces of input that may wait for a command that is slow to read.
const WINDOW: usize = 8;
/// How long a caller has to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a message to the caller says that the command runs; one that is gone shows by it.
const BEAT: Duration = Duration::from_secs(3);
/// After how long a caller that sends nothing is taken for gone: clients send something every ten
/// seconds, and answer pings.
const SILENCE: Duration = Duration::from_secs(25);

drover_events::wire! {
    /// The first frame, where it is to say who calls.
    struct Handshake {
        version: i64 = "version",
        auth_token: String = "auth_token",
    }
}

/// Serves a request.
pub(in crate::http) async fn serve(api: Arc<Api>, incoming: Incoming, access: Access) -> Response {
    let here = Arc::clone(&api);
    front::responded(api, incoming, |mut parts, _| async move {
        let upgrade = Upgrade::of(&mut parts);
        begin(&here, parts, access, upgrade).await
    })
    .await
}

async fn begin(
    api: &Arc<Api>,
    parts: Parts,
    access: Access,
    upgrade: Result<Upgrade, Refusal>,
) -> Result<Answer, Refusal> {
    let request = Request::head(parts)?;
    let introduces = flag(&request, "ws_handshake")?;
    match upgrade {
        Ok(upgrade) if introduces => {
            if !api.gate.is_guarded() {
                socket::same_origin(&request.headers)?;
            }
            // The parameters are looked at once the caller is known: none of them is ignored.
            let _ = command(&request);
            let api = Arc::clone(api);
            Ok(upgrade.accept(move |socket| introduced(api, request, access, socket)))
        }
        upgrade => {
            let target = ExecTarget::admit(api, request, access).await?;
            match upgrade {
                Ok(upgrade) => Ok(upgrade.accept(move |socket| target.run(socket))),
                Err(error) => target.end(Err(error)).await,
            }
        }
    }
}

/// A switch in the query.
fn flag(request: &Request, name: &str) -> Result<bool, Refusal> {
    match request.query.text(name) {
        "" => Ok(false),
        raw => query::parse_bool(raw).ok_or_else(|| {
            Refusal::bad_request(format!(
                "{name} value is not a boolean: strconv.ParseBool: parsing {raw:?}: invalid syntax"
            ))
        }),
    }
}

/// Identifies the caller by the first frame.
async fn introduced(api: Arc<Api>, mut request: Request, access: Access, mut socket: Socket) {
    let stop = socket.stop.clone();
    let admitted = async {
        let first = timeout(PATIENCE, first_frame(&mut socket)).await;
        let silent = || Refusal::bad_request("no handshake came in time");
        let hello = first.map_err(|_| silent())??;
        introduce(&mut request, &hello)?;
        ExecTarget::admit(&api, request, access).await
    };
    let target = tokio::select! {
        target = admitted => target,
        () = stop.cancelled() => Err(stopping()),
    };
    match target {
        Ok(target) => target.run(socket).await,
        Err(error) => socket.refuse(&error).await,
    }
}

async fn first_frame(socket: &mut Socket) -> Result<Handshake, Refusal> {
    let none = |why: String| Refusal::bad_request(format!("failed to read handshake: {why}"));
    loop {
        return match socket.stream.next().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                let read = drover_events::gojson::from_slice(&message.into_data());
                read.map_err(|error| none(error.to_string()))
            }
            Some(Ok(_)) | None => Err(none("the connection ended".to_owned())),
            Some(Err(error)) => Err(none(error.to_string())),
        };
    }
}

/// Takes a token as if it had come with the request.
fn introduce(request: &mut Request, hello: &Handshake) -> Result<(), Refusal> {
    if hello.version != 1 {
        let text = format!("unexpected handshake value: {}", hello.version);
        return Err(Refusal::bad_request(text));
    }
    let token = hello.auth_token.trim();
    match auth::token(request) {
        _ if token.is_empty() => Ok(()),
        Some(known) if known == token => Ok(()),
        Some(_) => Err(Refusal::bad_request(
            "handshake auth token mismatched auth header token",
        )),
        None => {
            // What no header can hold is no token either.
            let value = HeaderValue::from_str(token).map_err(|_| gate::denied())?;
            request.headers.insert("x-nomad-token", value);
            Ok(())
        }
    }
}

fn stopping() -> Refusal {
    Refusal::new(Code::Unavailable, "the agent is stopping")
}

/// Lets in a caller that may run a command beside a task: `alloc-exec` in the namespace of its
/// allocation, and `alloc-node-exec` too where the task sees the node's own files, for then the
/// command does. A caller that has the first nowhere is denied before the allocation is looked for.
fn admitted(late: Late, id: &str, task: &str) -> Result<Write, Refusal> {
    let acl = late.acl();
    gate::demand(gate::in_namespace(acl, "*", &[Ns::AllocExec]))?;
    if acl.is_management() {
        return Ok(late.admitted());
    }
    let allowed = Needs::of(&late.api, id, task)?.are_met(acl);
    late.authorize(allowed)
}

/// What a caller needs all of, in the namespace of an allocation.
struct Needs {
    namespace: String,
    all_of: &'static [Ns],
}

impl Needs {
    fn of(api: &Api, id: &str, task: &str) -> Result<Self, Refusal> {
        let view = api.projections.view();
        let alloc = glance(|| allocs::get(&view, id)).map_err(storage)?;
        let alloc = alloc.ok_or_else(|| unknown(id))?;
        let tasks = alloc.group().map(|group| &group.tasks);
        let found = tasks.and_then(|tasks| tasks.iter().find(|one| one.name == task));
        let sees_node = found.is_some_and(|task| !drivers::isolates_files(&task.driver));
        Ok(Self {
            namespace: alloc.namespace.clone(),
            all_of: match sees_node {
                true => &[Ns::AllocExec, Ns::AllocNodeExec],
                false => &[Ns::AllocExec],
            },
        })
    }

    fn are_met(&self, acl: &Acl) -> bool {
        let allows = |one: &Ns| gate::in_namespace(acl, &self.namespace, &[*one]);
        acl.is_management() || self.all_of.iter().all(allows)
    }
}

/// What is requested, by a caller that may.
struct ExecTarget {
    write: Write,
    place: ExecPlace,
    id: String,
    exec: ExecRequest,
    ticket: Ticket,
}

/// Where a command runs.
enum ExecPlace {
    /// In this agent's client.
    Near(Arc<Client>),
    /// On another machine, whose client could run it.
    Far(Box<Ready>),
}

impl ExecPlace {
    /// Finds it, and queries whether it could run there.
    async fn find(call: &FrontCall, id: &str, exec: &ExecRequest) -> Result<Self, Refusal> {
        match target_of(&call.api, id)? {
            Target::Here => {
                let none = || Refusal::bad_request("No local Node and node_id not provided");
                let client = call.api.server.client().ok_or_else(none)?;
                exec::check(&client, id, exec)?;
                Ok(Self::Near(client))
            }
            Target::Node(node) => {
                let sessions = &call.api.server.sessions;
                let ready = ran::ready(sessions, &node, &call.request).await?;
                Ok(Self::Far(Box::new(ready)))
            }
            Target::Server(_) => Err(unknown(id)),
        }
    }

    async fn run(
        self,
        id: &str,
        exec: &ExecRequest,
        input: mpsc::Receiver<ExecIn>,
    ) -> Result<mpsc::Receiver<ExecOut>, Refusal> {
        match self {
            Self::Near(client) => exec::exec(&client, id, exec, input).await,
            Self::Far(ready) => ready.run(input).await,
        }
    }
}

impl ExecTarget {
    /// Identifies the caller and what it requests, and lets in callers that may.
    async fn admit(api: &Arc<Api>, request: Request, access: Access) -> Result<Self, Refusal> {
        let entrance = ServerEntrance {
            api: Arc::clone(api),
            access,
            takes: Takes::Head,
        };
        let request = taken_in(&entrance, request, None).await?;
        let by_token = api.gate.is_guarded() && auth::token(&request).is_some();
        let origin = match by_token {
            true => Ok(()),
            false => socket::same_origin(&request.headers),
        };
        let id = request.segment(3)?;
        let exec = command(&request);
        let ran = exec.as_ref().map(|exec| Ran {
            task: exec.task.clone(),
            command: exec.command.clone(),
            tty: exec.tty,
        });
        let ticket = requests::requested_to_run(api, &request, ran.unwrap_or_default()).await?;
        let request = Arc::new(request);
        let call = FrontCall {
            api: Arc::clone(api),
            request: Arc::clone(&request),
        };
        let checked = async {
            origin?;
            let task = call.request.query.text("task").to_owned();
            let write = admitted(Late::new(call), &id, &task)?;
            let exec = exec?;
            let place = ExecPlace::find(&write, &id, &exec).await?;
            Ok((write, place, exec))
        };
        match checked.await {
            Ok((write, place, exec)) => Ok(Self {
                write,
                place,
                id,
                exec,
                ticket,
            }),
            Err(error) => {
                let denied = || requests::denial(&request);
                let refused =
                    requests::answered(&api.requests, Some(ticket), denied, Err(error)).await;
                Err(refused.err().unwrap_or_else(gate::denied))
            }
        }
    }

    /// Ends it without a command.
    async fn end(self, answer: Result<Answer, Refusal>) -> Result<Answer, Refusal> {
        ended(&self.write, self.ticket, answer).await
    }

    /// Runs the command.
    async fn run(self, mut socket: Socket) {
        let (to, input) = mpsc::channel(WINDOW);
        let Self {
            write,
            place,
            id,
            exec,
            ticket,
        } = self;
        let output = match place.run(&id, &exec, input).await {
            Ok(output) => output,
            Err(error) => {
                let ended = ended(&write, ticket, Err(error)).await;
                return match ended {
                    Ok(_) => {}
                    Err(error) => socket.refuse(&error).await,
                };
            }
        };
        let carried = Carried::default();
        let end = {
            // Of an allocation that is gone only managers saw more than its end.
            let needs = Needs::of(&write.api, &id, &exec.task).ok();
            let holds = move |now: &Identity| match &needs {
                Some(needs) => needs.are_met(&now.acl),
                None => now.is_management(),
            };
            let right = right::changed(Arc::clone(&write.api), Arc::clone(&write.request), holds);
            let stop = socket.stop.clone();
            tokio::select! {
                end = carried.carry(&mut socket, to, output) => end,
                () = right => SessionEnd::Refused(gate::denied()),
                () = stop.cancelled_owned() => SessionEnd::Refused(stopping()),
            }
        };
        let (status, exit_code) = match &end {
            SessionEnd::Exited(code) => (101, Some(*code)),
            SessionEnd::Left => (101, None),
            SessionEnd::Refused(error) => (crate::net::status(error.code), None),
        };
        let session = Session {
            bytes_in: carried.bytes_in.into_inner(),
            bytes_out: carried.bytes_out.into_inner(),
            exit_code,
        };
        if let Err(error) = ticket.complete_with(status, Some(session)).await {
            tracing::error!(%error, "the end of a command could not be written down");
        }
        match end {
            SessionEnd::Exited(_) => socket.done().await,
            SessionEnd::Refused(error) => socket.refuse(&error).await,
            SessionEnd::Left => {}
        }
    }
}

/// Writes down that nothing was run.
async fn ended(
    write: &Write,
    ticket: Ticket,
    answer: Result<Answer, Refusal>,
) -> Result<Answer, Refusal> {
    let denied = || requests::denial(&write.request);
    requests::answered(&write.api.requests, Some(ticket), denied, answer).await
}

/// What is to be run, from the query.
///
/// # Errors
/// 400 where it says nothing that could.
pub(super) fn command(request: &Request) -> Result<ExecRequest, Refusal> {
    let command = match request.query.text("command") {
        "" => Vec::new(),
        raw => {
            let read: Result<Option<Vec<String>>, _> = serde_json::from_str(raw);
            let bad = |error| format!("command is not a JSON array of texts: {error}");
            let words = read.map_err(|error| Refusal::bad_request(bad(error)))?;
            words.unwrap_or_default()
        }
    };
    Ok(ExecRequest {
        task: request.query.text("task").to_owned(),
        command,
        tty: flag(request, "tty")?,
    })
}

/// How a session ended.
enum SessionEnd {
    /// The command ended with this code.
    Exited(i32),
    /// The caller is gone.
    Left,
    /// It is ended here.
    Refused(Refusal),
}

/// Bytes of a session.
#[derive(Default)]
struct Carried {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Carried {
    /// Carries frames both ways until either side is done.
    async fn carry(
        &self,
        socket: &mut Socket,
        to: mpsc::Sender<ExecIn>,
        output: mpsc::Receiver<ExecOut>,
    ) -> SessionEnd {
        let (sink, stream) = (&mut socket.stream).split();
        tokio::select! {
            end = self.send(sink, output) => end,
            end = self.take(stream, to) => end,
        }
    }

    /// Sends what the command writes.
    async fn send<S>(&self, mut sink: S, mut output: mpsc::Receiver<ExecOut>) -> SessionEnd
    where
        S: futures_util::Sink<Message, Error = Error> + Unpin,
    {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let frame = tokio::select! {
                frame = output.recv() => frame,
                _ = beat.tick() => {
                    if sink.send(Message::Ping(Bytes::new())).await.is_err() {
                        return SessionEnd::Left;
                    }
                    Some(ExecOut::Heartbeat)
                }
            };
            let Some(frame) = frame else {
                return SessionEnd::Refused(Refusal::internal("the command was lost"));
            };
            if let ExecOut::Stdout(data) | ExecOut::Stderr(data) = &frame {
                self.bytes_out
                    .fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            let text = serde_json::to_string(&frame).unwrap_or_default();
            if sink.send(Message::text(text)).await.is_err() {
                return SessionEnd::Left;
            }
            if let ExecOut::Exited { code } = frame {
                return SessionEnd::Exited(code);
            }
        }
    }

    /// Takes what comes for the command, as fast as it takes it.
    async fn take<S>(&self, mut stream: S, to: mpsc::Sender<ExecIn>) -> SessionEnd
    where
        S: Stream<Item = Result<Message, Error>> + Unpin,
    {
        let bad = |why: String| SessionEnd::Refused(Refusal::bad_request(why));
        loop {
            let data = match timeout(SILENCE, stream.next()).await {
                Err(_) | Ok(None) => return SessionEnd::Left,
                Ok(Some(Err(Error::Capacity(error)))) => return bad(error.to_string()),
                Ok(Some(Err(_) | Ok(Message::Close(_)))) => return SessionEnd::Left,
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => continue,
                Ok(Some(Ok(message))) => message.into_data(),
            };
            let all = match ExecIn::of(&data) {
                Ok(all) => all,
                Err(error) => return bad(format!("failed to decode frame: {error}")),
            };
            for one in all {
                if let ExecIn::Stdin(data) = &one {
                    self.bytes_in
                        .fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                // A command that takes no more has ended, which the other side says.
                let _ = to.send(one).await;
            }
        }
    }
}
