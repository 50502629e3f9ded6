//! One call: recorded, done alone, and done wrong where a rule of `faults` says so.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::oneshot;
use tonic::{Code, Request, Response, Status};

use crate::Options;
use crate::faults::{self, Fault, When};
use crate::lies::Lie;
use crate::record::{End, Record};
use crate::requested::{Recordable, RequestRecord};
use crate::state::{Node, State, Store};

/// The plugin as calls reach it.
#[derive(Clone)]
pub(crate) struct Plugin(Arc<HostPath>);

/// The plugin.
pub(crate) struct HostPath {
    pub(crate) options: Options,
    pub(crate) store: Store,
    record: Record,
}

/// A call under way.
#[derive(Clone, Copy)]
struct Call<'a> {
    call: &'static str,
    requested: &'a RequestRecord,
    /// Its number in the record.
    seq: u64,
}

/// An error on the way to an answer.
pub(crate) struct Failed(pub(crate) Status);

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Failed {
        Failed(Status::internal(format!("{error:#}")))
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed(status)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        Failed(Status::internal(error.to_string()))
    }
}

/// What a field has to have.
pub(crate) fn given<'a>(value: &'a str, what: &str) -> Result<&'a str, Status> {
    match value.is_empty() {
        true => Err(Status::invalid_argument(format!("no {what}"))),
        false => Ok(value),
    }
}

/// The parameter of a volume that says what secret its calls have to bring along.
const WANTS: &str = "secret";

/// Refuses where a volume wants a secret that did not come.
pub(crate) fn let_in(
    parameters: &std::collections::BTreeMap<String, String>,
    secrets: &std::collections::BTreeMap<String, String>,
) -> Result<(), Status> {
    match parameters.get(WANTS) {
        Some(wanted) if secrets.get(WANTS) != Some(wanted) => Err(Status::unauthenticated(
            "the secret of the volume is another",
        )),
        _ => Ok(()),
    }
}

impl Plugin {
    /// Answers a call: `work` is done alone among all plugins that share the folder, also if no
    /// caller waits for the answer any more, as most plugins do it.
    pub(crate) async fn answer<R, A>(
        &self,
        call: &'static str,
        request: Request<R>,
        work: impl FnOnce(&HostPath, &mut State, R) -> Result<A, Failed> + Send + 'static,
    ) -> Result<Response<A>, Status>
    where
        R: Recordable + Send + 'static,
        A: Lie + Send + 'static,
    {
        let plugin = Arc::clone(&self.0);
        let request = request.into_inner();
        let (waited_for, answer) = oneshot::channel();
        tokio::spawn(async move {
            let answer = plugin.recorded(call, request, work, &waited_for).await;
            // The caller may not wait any more.
            let _ = waited_for.send(answer);
        });
        let panicked = |_| Status::internal("the call ended without an answer");
        answer.await.map_err(panicked)?.map(Response::new)
    }
}

impl HostPath {
    /// Opens the folder, and says there that the node is known.
    pub(crate) fn open(mut options: Options) -> Result<Plugin> {
        options.links |= !nix::unistd::geteuid().is_root();
        let store = Store::open(&options.state_dir)?;
        let record = Record::new(options.record.clone());
        if !options.no_node {
            let node = Node {
                place: options.topology.iter().cloned().collect(),
                max_volumes: options.max_volumes,
            };
            store.change(|state| {
                state.nodes.insert(options.node_id.clone(), node);
                anyhow::Ok(())
            })?;
        }
        Ok(Plugin(Arc::new(HostPath {
            options,
            store,
            record,
        })))
    }

    async fn recorded<R: Recordable, A: Lie>(
        &self,
        call: &'static str,
        request: R,
        work: impl FnOnce(&HostPath, &mut State, R) -> Result<A, Failed>,
        waited_for: &oneshot::Sender<Result<A, Status>>,
    ) -> Result<A, Status> {
        let requested = request.reported();
        let node = &self.options.node_id;
        let seq = self.record.begin(node, call, &requested);
        let reported = Call {
            call,
            requested: &requested,
            seq,
        };
        let answer = self.done(reported, request, work, waited_for).await;
        let (code, text) = match &answer {
            Ok(_) => (Code::Ok, ""),
            Err(status) => (status.code(), status.message()),
        };
        let end = End {
            code: format!("{code:?}"),
            text,
            late: waited_for.is_closed(),
        };
        self.record.end(node, call, seq, end);
        answer
    }

    async fn done<R, A: Lie>(
        &self,
        reported: Call<'_>,
        request: R,
        work: impl FnOnce(&HostPath, &mut State, R) -> Result<A, Failed>,
        waited_for: &oneshot::Sender<Result<A, Status>>,
    ) -> Result<A, Status> {
        let mut lies = self.wrong(reported, When::Before).await?;
        let done = self.store.change(|state| work(self, state, request));
        let mut answer = done.map_err(|failed| failed.0)?;
        if !waited_for.is_closed() {
            lies.extend(self.wrong(reported, When::After).await?);
        }
        for id in lies {
            answer.lie(&id);
        }
        Ok(answer)
    }

    /// Does wrong what the rules say; the ids to lie about.
    async fn wrong(&self, reported: Call<'_>, when: When) -> Result<Vec<String>, Status> {
        let Call {
            call,
            requested,
            seq,
        } = reported;
        let Some(path) = &self.options.faults else {
            return Ok(Vec::new());
        };
        let faults = self.store.change(|state| {
            let faults = faults::take(path, call, &requested.volume, when)?;
            for fault in &faults {
                if let Fault::Forget(what) = fault {
                    faults::forget(state, &requested.volume, *what);
                }
            }
            anyhow::Ok(faults)
        });
        let mut lies = Vec::new();
        for fault in faults.map_err(|error| Status::internal(format!("{error:#}")))? {
            match fault {
                Fault::Fail { code, text } => return Err(Status::new(Code::from_i32(code), text)),
                Fault::Slow { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
                Fault::Hold { until } => {
                    let node = &self.options.node_id;
                    self.record.held(node, call, seq, (when, &requested.volume));
                    while !until.exists() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                Fault::Hang => std::future::pending().await,
                Fault::Lie { id } => lies.push(id),
                // As a crash: nothing is cleaned up.
                Fault::Die => std::process::exit(70),
                Fault::Forget(_) => {}
            }
        }
        Ok(lies)
    }
}
