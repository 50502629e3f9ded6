//! Allocations are stopped.

use super::namespace_of;
use crate::acl::NamespaceCapability as Ns;
use crate::commands::alloc::StopAlloc;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::FrontCall;
use crate::http::gate::Late;
use crate::http::new_id;

drover_events::wire! {
    /// The evaluation that follows from a stop.
    pub(crate) struct StopResponse {
        eval_id: String = "EvalID",
        index: u64 = "Index",
    }
}

/// `PUT /v1/allocation/:id/stop`.
pub(in crate::http) async fn stop(late: Late) -> Result<Answer, Refusal> {
    let find = |call: &FrontCall| namespace_of(&call.api, &call.request.segment(2)?);
    let missing = || Refusal::not_found("allocation not found");
    let write = late.in_namespace_of(&[Ns::AllocLifecycle], find, missing)?;
    let query = &write.request.query;
    let (no_shutdown_delay, reschedule) =
        (query.flag("no_shutdown_delay")?, query.flag("reschedule")?);
    let eval_id = new_id();
    let alloc_id = write.request.segment(2)?;
    let command = StopAlloc {
        alloc_id,
        eval_id: eval_id.clone(),
        no_shutdown_delay,
        reschedule,
    };
    let index = write.submit(command).await?.index;
    Ok(Answer::json(&StopResponse { eval_id, index })?.written(index))
}
