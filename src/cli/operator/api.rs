//! `operator api`: any request, with the connection's flags; and `operator metrics`.

use crate::cli::client::{Client, encode};
use crate::cli::conn::{Conn, PastConnection};
use crate::cli::out::Out;
use crate::cli::show::pretty;
use crate::cli::template;
use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::Value as Json;
use std::io::{IsTerminal, Read};

/// Flags of `operator api`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator api /v1/jobs
  drover operator api -filter 'Status == \"running\"' /v1/jobs | jq .
  drover operator api -X DELETE /v1/job/web
  drover job run -output web.nomad.hcl | drover operator api /v1/jobs
  drover operator api -dryrun /v1/nodes           the same as a curl command

What comes on standard input is the body, and makes a POST of a request without -X.
Exit codes: 0 for an answer below 400, 1 for others.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    /// The path, with or without /v1
    path: String,
    /// The method
    #[arg(short = 'X', value_name = "METHOD")]
    method: Option<String>,
    /// Another header, Name: value; may be repeated
    #[arg(short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// Only what this expression holds for
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Print a curl command in place of sending the request
    #[arg(long)]
    dryrun: bool,
    /// Print the request and the answer's headers to standard error
    #[arg(long)]
    verbose: bool,
}

/// Sends the request, and prints the answer as it comes.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stdin = std::io::stdin();
    let mut body = Vec::new();
    // A terminal is no body, and neither is a pipe that a method without one leaves alone.
    let reads = !stdin.is_terminal() && !matches!(args.method.as_deref(), Some("GET" | "HEAD"));
    if reads && has_input() {
        let read = stdin.lock().read_to_end(&mut body);
        read.context("Error reading standard input")?;
    }
    let method = args
        .method
        .clone()
        .unwrap_or_else(|| match body.is_empty() {
            true => "GET".to_owned(),
            false => "POST".to_owned(),
        });
    let method = Method::from_bytes(method.to_uppercase().as_bytes())
        .with_context(|| format!("-X {method:?} is no method"))?;
    let path = path(&args);
    let mut headers = Vec::new();
    for header in &args.headers {
        let Some((name, value)) = header.split_once(':') else {
            bail!("Error parsing -H {header:?}: write it as -H 'Name: value'");
        };
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    if args.dryrun {
        out.line(&curl(&args, &client, (&method, &path), !body.is_empty()));
        return Ok(0);
    }
    if args.verbose {
        out.error(&format!("> {method} {path} HTTP/1.1"));
        headers
            .iter()
            .for_each(|(name, value)| out.error(&format!("> {name}: {value}")));
    }
    let answer = client.raw((method, &path), &headers, body).await?;
    let status = answer.status();
    if args.verbose {
        out.error(&format!("< HTTP/1.1 {status}"));
        for (name, value) in answer.headers() {
            let value = String::from_utf8_lossy(value.as_bytes());
            out.error(&format!("< {name}: {value}"));
        }
    }
    let mut body = answer.into_body();
    let mut last = b'\n';
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.context("reading the answer")?.into_data() {
            last = data.last().copied().unwrap_or(last);
            out.raw(&data);
        }
    }
    if last != b'\n' && out.is_terminal() {
        out.line("");
    }
    if status.as_u16() >= 400 {
        out.error(&format!("The agent answered {status}"));
        return Ok(1);
    }
    Ok(0)
}

/// Whether standard input is a file or a pipe rather than nothing at all.
fn has_input() -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = std::fs::metadata("/dev/stdin").map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_fifo() || kind.is_socket())
}

/// The path below /v1, with the filter.
fn path(args: &Args) -> String {
    let given = args
        .path
        .strip_prefix(&args.conn.address)
        .unwrap_or(&args.path);
    let mut path = format!("/{}", given.trim_start_matches('/'));
    let versioned = ["/v1/", "/ui/", "/.well-known/"];
    if !versioned.iter().any(|begin| path.starts_with(begin)) {
        path = format!("/v1{path}");
    }
    if let Some(filter) = &args.filter {
        let sign = if path.contains('?') { '&' } else { '?' };
        path = format!("{path}{sign}filter={}", encode(filter));
    }
    path
}

/// A curl command that sends the same request. A token is read from the environment, not shown.
fn curl(args: &Args, client: &Client, (method, path): (&Method, &str), has_body: bool) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let mut words = vec!["curl".to_owned(), "-X".to_owned(), method.to_string()];
    let (place, socket) = match client.shown().strip_prefix("unix://") {
        Some(socket) => ("http://localhost".to_owned(), Some(socket.to_owned())),
        None => (client.shown().trim_end_matches('/').to_owned(), None),
    };
    if let Some(socket) = socket {
        words.extend(["--unix-socket".to_owned(), quoted(&socket)]);
    }
    let trust = &args.conn.trust.named();
    let files = [
        ("--cacert", &trust.ca_cert),
        ("--capath", &trust.ca_path),
        ("--cert", &trust.client_cert),
        ("--key", &trust.client_key),
    ];
    for (flag, file) in files {
        let file = file.iter().map(|file| quoted(&file.to_string_lossy()));
        words.extend(file.flat_map(|file| [flag.to_owned(), file]));
    }
    if trust.tls_skip_verify {
        words.push("--insecure".to_owned());
    }
    if !args.conn.token.is_empty() {
        words.push("-H \"X-Nomad-Token: ${NOMAD_TOKEN}\"".to_owned());
    }
    for header in &args.headers {
        words.extend(["-H".to_owned(), quoted(header)]);
    }
    if has_body {
        words.push("--data-binary @-".to_owned());
    }
    words.push(quoted(&format!("{place}{}", client.uri(path, &[]))));
    words.join(" ")
}

/// Flags of `operator metrics`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator metrics -pretty
  drover operator metrics -format prometheus")]
pub(in crate::cli) struct MetricsArgs {
    #[command(flatten)]
    conn: Conn,
    /// Indent the JSON
    #[arg(long, visible_alias = "json")]
    pretty: bool,
    /// Another form: prometheus
    #[arg(long, value_name = "FORM")]
    format: Option<String>,
    /// Print through a Go template
    #[arg(short = 't', value_name = "TEMPLATE")]
    template: Option<String>,
}

/// Prints the metrics of the agent that answers.
pub(in crate::cli) async fn metrics(args: MetricsArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let format = args.format.iter().map(|form| ("format", form.as_str()));
    let reply = client.get("/v1/metrics", &format.collect::<Vec<_>>()).await;
    let reply = reply.map_err(|err| err.context("Error querying metrics"))?;
    if args.format.is_some() {
        out.raw(&reply.body);
        return Ok(0);
    }
    let metrics: Json = reply.json()?;
    match &args.template {
        Some(pattern) => out.exact(&template::render(pattern, &metrics)?),
        None if args.pretty => out.exact(&pretty(&metrics)),
        None => out.exact(&metrics.to_string()),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::FromArgMatches;

    #[test]
    fn a_request_is_told_as_curl_without_its_token() {
        let line = |more: &[&str]| {
            let mut words = vec![
                "drover",
                "operator",
                "api",
                "--address",
                "http://10.0.0.1:4646",
            ];
            words.extend(more);
            let matches = crate::cli::table().try_get_matches_from(words).unwrap();
            let cli = Cli::from_arg_matches(&matches).unwrap();
            let crate::cli::Noun::Operator(crate::cli::operator::Verb::Api(args)) = cli.noun else {
                panic!("another command");
            };
            let client = args.conn.client().unwrap();
            let method = args.method.clone().unwrap_or_else(|| "GET".to_owned());
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            curl(&args, &client, (&method, &path(&args)), false)
        };
        assert_eq!(
            line(&["--namespace", "", "--token", "", "jobs"]),
            "curl -X GET 'http://10.0.0.1:4646/v1/jobs'"
        );
        let reported = line(&[
            "--namespace",
            "prod",
            "--token",
            "s3cret",
            "-X",
            "DELETE",
            "-H",
            "A: it's",
            "--filter",
            "ID == \"x\"",
            "/v1/job/web?purge=true",
        ]);
        assert_eq!(
            reported,
            "curl -X DELETE -H \"X-Nomad-Token: ${NOMAD_TOKEN}\" -H 'A: it'\\''s' \
             'http://10.0.0.1:4646/v1/job/web?purge=true&filter=ID%20%3D%3D%20%22x%22&\
             namespace=prod'"
        );
    }
}
