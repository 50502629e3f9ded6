//! `job validate`

use super::super::conn::Conn;
use super::super::out::Out;
use super::source::JobSource;
use crate::http::answers::JobValidateResponse;
use anyhow::Result;
use drover_events::model::status::DEFAULT_NAMESPACE;
use serde_json::json;

/// Flags of `job validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job validate web.nomad.hcl")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    source: JobSource,
}

/// Has a server check a job.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let loaded = match args.source.load(&args.conn) {
        Ok(loaded) => loaded,
        Err(err) => {
            out.error(&format!("{err:#}"));
            return Ok(255);
        }
    };
    let mut job = loaded.job;
    job.canonicalise_for_server();
    let client = args.conn.client()?;
    let namespace = job.namespace().unwrap_or(DEFAULT_NAMESPACE).to_owned();
    let body = json!({"Job": job.to_json()});
    let answer = client
        .put("/v1/validate/job", &[("namespace", &namespace)], &body)
        .await;
    let answer: JobValidateResponse = answer.map_err(|err| err.context("Error validating job"))?;
    let JobValidateResponse {
        warnings, error, ..
    } = answer;
    if !error.is_empty() {
        out.error(&format!("Job validation errors:\n{error}"));
        if !warnings.is_empty() {
            out.line(&format!("Job Warnings:\n{warnings}\n"));
        }
        return Ok(1);
    }
    if !warnings.is_empty() {
        out.line(&format!("Job Warnings:\n{warnings}\n"));
    }
    out.line("Job validation successful");
    Ok(0)
}
