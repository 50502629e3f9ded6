//! Changes of deployments: fail, pause, promote, health, unblock.

use drover_events::gojson::List;
use drover_projections::tables::deployments::Deployments;

use crate::acl::NamespaceCapability as Ns;
use crate::commands::Command;
use crate::commands::deployment::{
    DeploymentChange, PromoteDeployment, Reverted, SetDeploymentAllocHealth, SetDeploymentStatus,
};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::FrontCall;
use crate::http::gate::{Late, Write};
use crate::http::list::storage;
use crate::http::new_id;
use crate::table_reads::glance;

drover_events::wire! {
    /// Everything a change of a deployment may say.
    struct DeploymentBody {
        deployment_id: String = "DeploymentID",
        pause: bool = "Pause",
        all: bool = "All",
        groups: List<String> = "Groups",
        healthy_allocation_ids: List<String> = "HealthyAllocationIDs",
        unhealthy_allocation_ids: List<String> = "UnhealthyAllocationIDs",
    }

    /// What came of a change of a deployment.
    pub(crate) struct DeploymentUpdateResponse {
        eval_id: String = "EvalID",
        eval_create_index: u64 = "EvalCreateIndex",
        deployment_modify_index: u64 = "DeploymentModifyIndex",
        reverted_job_version: Option<u64> = "RevertedJobVersion",
        index: u64 = "Index",
    }
}

/// The body, its deployment checked against the path.
async fn body(write: &Write) -> Result<DeploymentBody, Refusal> {
    let body: DeploymentBody = write.json().await?;
    if body.deployment_id.is_empty() {
        return Err(Refusal::bad_request("DeploymentID must be specified"));
    }
    if body.deployment_id != write.request.segment(3)? {
        return Err(Refusal::bad_request("Deployment ID does not match"));
    }
    Ok(body)
}

/// Lets in a caller that may change the deployment in the path.
fn admitted(late: Late, own: Ns) -> Result<Write, Refusal> {
    let find = |call: &FrontCall| {
        let id = call.request.segment(3)?;
        let view = call.api.projections.view();
        let found = glance(|| view.get::<Deployments>(id.as_str()));
        Ok(found.map_err(storage)?.map(|row| row.namespace))
    };
    let missing = || Refusal::by_rule("deployment not found");
    late.in_namespace_of(&[Ns::SubmitJob, own], find, missing)
}

async fn change(
    write: &Write,
    eval_id: String,
    command: impl Command + 'static,
    reverted: &Reverted,
) -> Result<Answer, Refusal> {
    let index = write.submit(command).await?.index;
    let view = write.api.projections.view();
    let made = glance(|| view.get::<drover_projections::tables::evals::Evals>(eval_id.as_str()));
    let made = made.map_err(storage)?.is_some();
    let id = write.request.segment(3)?;
    let known = glance(|| view.modify_index::<Deployments>(id.as_str()))
        .map_err(storage)?
        .is_some();
    let answer = DeploymentUpdateResponse {
        eval_id: if made { eval_id } else { String::new() },
        eval_create_index: if made { index } else { 0 },
        deployment_modify_index: if known { index } else { 0 },
        reverted_job_version: reverted.version(),
        index,
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// `PUT /v1/deployment/fail/:id`.
pub(in crate::http) async fn fail(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, Ns::FailDeployment)?;
    let (deployment_id, eval_id) = (write.request.segment(3)?, new_id());
    let reverted = Reverted::default();
    let change_to = DeploymentChange::Fail;
    let command = SetDeploymentStatus {
        deployment_id,
        change: change_to,
        eval_id: eval_id.clone(),
        reverted: reverted.clone(),
    };
    change(&write, eval_id, command, &reverted).await
}

/// `PUT /v1/deployment/pause/:id`.
pub(in crate::http) async fn pause(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, Ns::PauseDeployment)?;
    let body = body(&write).await?;
    let change_to = if body.pause {
        DeploymentChange::Pause
    } else {
        DeploymentChange::Resume
    };
    let (deployment_id, eval_id) = (body.deployment_id, new_id());
    let reverted = Reverted::default();
    let command = SetDeploymentStatus {
        deployment_id,
        change: change_to,
        eval_id: eval_id.clone(),
        reverted: reverted.clone(),
    };
    change(&write, eval_id, command, &reverted).await
}

/// `PUT /v1/deployment/promote/:id`.
pub(in crate::http) async fn promote(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, Ns::PromoteDeployment)?;
    let body = body(&write).await?;
    let eval_id = new_id();
    let reverted = Reverted::default();
    let command = PromoteDeployment {
        deployment_id: body.deployment_id,
        all: body.all,
        groups: body.groups.into_vec(),
        eval_id: eval_id.clone(),
    };
    change(&write, eval_id, command, &reverted).await
}

/// `PUT /v1/deployment/allocation-health/:id`.
pub(in crate::http) async fn health(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, Ns::SetAllocHealthDeployment)?;
    let body = body(&write).await?;
    let eval_id = new_id();
    let reverted = Reverted::default();
    let command = SetDeploymentAllocHealth {
        deployment_id: body.deployment_id,
        healthy: body.healthy_allocation_ids.into_vec(),
        unhealthy: body.unhealthy_allocation_ids.into_vec(),
        eval_id: eval_id.clone(),
        reverted: reverted.clone(),
    };
    change(&write, eval_id, command, &reverted).await
}

/// `PUT /v1/deployment/unblock/:id`: only a deployment over several regions waits for another one,
/// and of those there are none.
pub(in crate::http) async fn unblock(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, Ns::UnblockDeployment)?;
    let body = body(&write).await?;
    let view = write.api.projections.view();
    let known = glance(|| view.get::<Deployments>(body.deployment_id.as_str()));
    let known = known.map_err(storage)?;
    let known = known.ok_or_else(|| Refusal::by_rule("deployment not found"))?;
    let what = if known.active() {
        "running"
    } else {
        "terminal"
    };
    Err(Refusal::by_rule(format!("can't unblock {what} deployment")))
}
