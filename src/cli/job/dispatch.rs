//! `job dispatch`

use super::super::columns::pairs;
use super::super::conn::Conn;
use super::super::monitor::{Monitor, Wait};
use super::super::out::Out;
use super::FoundJob;
use crate::http::answers::DispatchResponse;
use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::{Map, json};
use std::io::Read;

/// Flags of `job dispatch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job dispatch -meta user=ann encode video.json
  cat video.json | drover job dispatch -detach encode -")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// Wait until the instance is over; exit code 1 if something of it failed
    #[arg(long = "wait", conflicts_with = "detach")]
    to_its_end: bool,
    /// The parameterized job's ID or a prefix of it
    job: String,
    /// The file with the payload; - reads standard input
    input: Option<String>,
    /// Metadata for the instance, key=value; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
    /// Dispatch once only for this token
    #[arg(
        long,
        value_name = "TOKEN",
        default_value = "",
        hide_default_value = true
    )]
    idempotency_token: String,
    /// Put this into the instance's ID
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    id_prefix_template: String,
    /// The instance's priority
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    priority: i64,
}

/// Dispatches an instance.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let mut meta = Map::new();
    for pair in &args.meta {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("Error parsing meta value {pair:?}: write it as -meta key=value");
        };
        meta.insert(key.to_owned(), value.into());
    }
    let payload = payload(args.input.as_deref())?;
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let body = json!({
        "JobID": job.id,
        "Meta": meta,
        "Payload": base64::engine::general_purpose::STANDARD.encode(payload),
        "IdPrefixTemplate": args.id_prefix_template,
        "Priority": args.priority,
    });
    let mut query = job.scope().to_vec();
    if !args.idempotency_token.is_empty() {
        query.push(("idempotency_token", &args.idempotency_token));
    }
    let done = job.client.put(&job.path("/dispatch"), &query, &body).await;
    let done: DispatchResponse = done.map_err(|err| err.context("Failed to dispatch job"))?;
    let (child, eval) = (&done.dispatched_job_id, &done.eval_id);
    let mut rows = vec![("Dispatched Job ID", child.clone())];
    if !eval.is_empty() {
        rows.push(("Evaluation ID", eval.clone()));
    }
    out.line(&pairs(&rows));
    if args.wait.detach || eval.is_empty() {
        return Ok(0);
    }
    out.line("");
    let eval = (eval.as_str(), done.eval_create_index);
    let code = job.follow(eval, &args.wait, out).await?;
    if !args.to_its_end || code != 0 {
        return Ok(code);
    }
    Monitor::new(&job.client, out, args.wait.verbose, &job.namespace)
        .end_of(child, done.job_create_index)
        .await
}

fn payload(input: Option<&str>) -> Result<Vec<u8>> {
    match input {
        None => Ok(Vec::new()),
        Some("-") => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.context("Error reading the payload from standard input")?;
            Ok(bytes)
        }
        Some(path) => {
            std::fs::read(path).with_context(|| format!("Error reading the payload from {path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_a_files_bytes_or_nothing() {
        assert!(payload(None).unwrap().is_empty());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0, 255, 7]).unwrap();
        assert_eq!(payload(file.path().to_str()).unwrap(), [0, 255, 7]);
        let missing = payload(Some("/no/such/file")).unwrap_err().to_string();
        assert_eq!(missing, "Error reading the payload from /no/such/file");
    }
}
