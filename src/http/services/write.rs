//! Registrations of services are deleted.

use crate::acl::NamespaceCapability as Ns;
use crate::commands::service::DeleteService;
use crate::error::{Code, Refusal};
use crate::http::answer::Answer;
use crate::http::gate::Write;

/// What lets a registration be deleted.
pub(in crate::http) const DELETE: &[Ns] = &[Ns::SubmitJob, Ns::DeleteServiceRegistration];

/// `DELETE /v1/service/:name/:id`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    let path = write.request.behind("/v1/service/")?;
    let (_, id) = path.split_once('/').unwrap_or_default();
    if id.is_empty() {
        return Err(Refusal::bad_request("missing service id"));
    }
    let command = DeleteService {
        namespace: write.request.namespace().to_owned(),
        id: id.to_owned(),
    };
    let done = write
        .submit(command)
        .await
        .map_err(|error| match error.code {
            Code::NotFound => Refusal::by_rule(error.message),
            _ => error,
        })?;
    Ok(Answer::nothing().written(done.index))
}
