//! Requests of servers to the plugins of this node.
//!
//! `controller` has the requests to controllers, `node` those about the volumes of this node,
//! `messages` the forms of the calls to plugins and of their answers.

mod controller;
mod messages;
mod node;

use std::sync::Arc;

use drover_csi::{CallError, RetryDecision};

use super::Csi;
use drover_error::{Code, Refusal};
use drover_rpc::csi::*;
use drover_rpc::service::{Access, Service};

/// The text about a step that failed (PLG-10): the call, and the plugin's own text. What was tried
/// with it the server says, whose step it is (EV-18).
fn failed(error: &CallError) -> Refusal {
    let code = match error.retry_decision() {
        // It may still be done, or another one is under way.
        RetryDecision::Retry if !error.has_ended() => Code::Timeout,
        RetryDecision::Retry => Code::Unavailable,
        RetryDecision::Permanent | RetryDecision::AlreadyDone => Code::Refused,
    };
    Refusal::new(code, error.to_string())
}

/// What is undone already is undone (CSI-34).
fn undone(answer: Result<(), CallError>) -> Result<Done, Refusal> {
    match answer {
        Err(error) if error.retry_decision() != RetryDecision::AlreadyDone => Err(failed(&error)),
        _ => Ok(Done::default()),
    }
}

/// The methods, for the sessions that servers open.
pub fn service(csi: &Arc<Csi>) -> Service<Csi> {
    macro_rules! methods {
        ($($method:ident => $work:ident),* $(,)?) => {
            Service::new(Arc::clone(csi))$(.method::<$method, _, _>(
                Access::Server,
                |csi: Arc<Csi>, _, requested| async move { csi.$work(requested).await },
            ))*
        };
    }
    methods! {
        ControllerAttachVolume => attach,
        ControllerDetachVolume => detach,
        ControllerValidateVolume => validate,
        ControllerCreateVolume => create,
        ControllerExpandVolume => expand,
        ControllerDeleteVolume => delete,
        ControllerListVolumes => list,
        ControllerCreateSnapshot => create_snapshot,
        ControllerDeleteSnapshot => delete_snapshot,
        ControllerListSnapshots => list_snapshots,
        NodeDetachVolume => node_detach,
        NodeExpandVolume => node_expand,
    }
}
