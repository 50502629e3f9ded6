//! `acl bootstrap`

use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::Format;
use super::super::spec::source;
use super::token;
use anyhow::Result;
use serde_json::json;

/// Flags of `acl bootstrap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover acl bootstrap
  uuidgen | drover acl bootstrap -")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// A file with the secret the token is to have, a UUID; - reads standard input
    #[arg(value_name = "PATH")]
    secret_file: Option<String>,
}

/// Makes the first management token.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    args.format.check()?;
    let body = match &args.secret_file {
        Some(path) => json!({ "BootstrapSecret": source(path)?.trim() }),
        None => json!({}),
    };
    let client = args.conn.client()?;
    let made = client.put("/v1/acl/bootstrap", &[], &body);
    let made = made
        .await
        .map_err(|err| err.context("Error bootstrapping"))?;
    token::print(&args.format, made, out)?;
    Ok(0)
}
