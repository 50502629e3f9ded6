//! Job specifications: parsed and validated, nothing changed.

use drover_events::gojson::Any;
use tokio::sync::Semaphore;

use super::JobValidateResponse;
use super::write::{JobBody, missing, validation};
use crate::acl::NamespaceCapability as Ns;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::{Late, READ_JOB, Write, demand, in_namespace};
use crate::jobspec;
use crate::table_reads::in_turn;

/// What lets a specification be parsed.
pub(in crate::http) const PARSE: &[Ns] = &[Ns::ParseJob, Ns::SubmitJob];

/// Specifications parsed at a time.
static PARSING: Semaphore = Semaphore::const_new(4);

drover_events::wire! {
    /// A specification to parse.
    struct ParseBody {
        job_hcl: String = "JobHCL",
        variables: String = "Variables",
        canonicalize: bool = "Canonicalize",
    }
}

/// `PUT /v1/jobs/parse`.
pub(in crate::http) async fn parse(write: Write) -> Result<Answer, Refusal> {
    let body: ParseBody = write.json().await?;
    if body.job_hcl.is_empty() {
        return Err(Refusal::bad_request("Job spec is empty"));
    }
    let canonicalise = body.canonicalize;
    // A long specification takes a while and much memory; other requests do not wait for it.
    let parsed = in_turn(&PARSING, move || {
        let mut input = jobspec::Input::server(&body.job_hcl);
        if !body.variables.is_empty() {
            input.files.push(("input.hcl".to_owned(), body.variables));
        }
        jobspec::parse(&input)
    });
    let mut job = parsed
        .await?
        .map_err(|problems| Refusal::bad_request(format!("Failed to parse job: {problems}")))?;
    if canonicalise {
        job.canonicalise();
    }
    Answer::json::<Any>(&job.to_json())
}

/// `PUT /v1/validate/job`.
pub(in crate::http) async fn validate(late: Late) -> Result<Answer, Refusal> {
    let found = late.judged(|call| {
        let body: JobBody = call.request.json()?;
        let job = body.complete(call)?;
        // Before it is reported whether the namespace is there.
        demand(in_namespace(
            &call.request.identity.acl,
            &job.namespace,
            READ_JOB,
        ))?;
        let mut found = validation(call, &job)?;
        found.errors.extend(missing(call, &job)?);
        // The specification is as it should be; that it is not run here is reported all the same.
        let unbuilt = jobspec::unbuilt(&job).into_iter();
        found
            .warnings
            .extend(unbuilt.map(|text| format!("{text}: a registration will be refused")));
        Ok(found)
    });
    let found = found.await?;
    Answer::json(&JobValidateResponse {
        driver_config_validated: true,
        error: found.error().unwrap_or_default(),
        warnings: found.warning(),
        validation_errors: Some(found.errors)
            .filter(|errors| !errors.is_empty())
            .into(),
    })
}
