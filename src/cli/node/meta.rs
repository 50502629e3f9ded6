//! `node meta`: the metadata of a node, shown and changed while it runs.

use crate::cli::client::Client;
use crate::cli::columns::pairs;
use crate::cli::conn::Conn;
use crate::cli::out::Out;
use crate::cli::query::find;
use crate::cli::show::Format;
use crate::client::metadata::Metadata;
use crate::http::answers::NodeListStub;
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::gojson;
use serde_json::{Map, Value as Json, json};

/// What can be done with a node's metadata.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Set and unset metadata of a node
    Apply(ApplyArgs),
    /// Show the metadata of a node
    Read(ReadArgs),
}

/// Flags of `node meta apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover node meta apply rack=r7 tier=gold
  drover node meta apply -node-id 8ba85cef -unset tier,beta rack=r8

It is kept by the node over restarts, and counts in constraints at once. What the configuration of
the node says is hidden by -unset until the key is set again.")]
pub(in crate::cli) struct ApplyArgs {
    #[command(flatten)]
    conn: Conn,
    /// The node's id or a prefix of it; by default the node of the agent that is called
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
    /// Keys to take away, with commas between them; may be repeated
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    unset: Vec<String>,
    /// Keys and their values
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
}

/// Flags of `node meta read`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover node meta read
  drover node meta read -json -node-id 8ba85cef
  drover node meta read -t '{{index .Meta \"rack\"}}'")]
pub(in crate::cli) struct ReadArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// The node's id or a prefix of it; by default the node of the agent that is called
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
}

const PATH: &str = "/v1/client/metadata";

/// Runs a verb.
pub(in crate::cli) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Apply(args) => apply(args, out).await,
        Verb::Read(args) => read(args, out).await,
    }
}

/// The whole id of the node that is named.
async fn whole(client: &Client, node: Option<&str>) -> Result<String> {
    match node {
        Some(node) => Ok(find::<NodeListStub>(client, node).await?.id),
        None => Ok(String::new()),
    }
}

/// What is to change; a key that is set and unset is a mistake.
fn changes(unset: &[String], given: &[String]) -> Result<Map<String, Json>> {
    let mut meta: Map<String, Json> = unset
        .iter()
        .filter(|key| !key.is_empty())
        .map(|key| (key.clone(), Json::Null))
        .collect();
    for pair in given {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("{pair:?} has no value: write it as KEY=VALUE, or take it away with -unset");
        };
        if let Some(before) = meta.insert(key.to_owned(), value.into()) {
            let how = if before.is_null() {
                "and unset"
            } else {
                "twice"
            };
            bail!("{key:?} is set {how}");
        }
    }
    if meta.is_empty() {
        bail!("Nothing to change: name keys as KEY=VALUE or with -unset");
    }
    Ok(meta)
}

async fn apply(args: ApplyArgs, out: &Out) -> Result<u8> {
    let meta = changes(&args.unset, &args.pairs)?;
    let client = args.conn.client()?;
    let node = whole(&client, args.node_id.as_deref()).await?;
    let body = json!({ "NodeID": node, "Meta": meta });
    let done = client.read(PATH, &[], &body).await;
    done.map_err(|err| err.context("Error applying dynamic node metadata"))?;
    out.line("Metadata of the node changed");
    Ok(0)
}

async fn read(args: ReadArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let node = whole(&client, args.node_id.as_deref()).await?;
    let requested: &[(&str, &str)] = &[("node_id", node.as_str())];
    let failed = "Error reading dynamic node metadata";
    let found = args
        .format
        .ask::<Metadata>(&client, (PATH, requested), failed, out);
    let Some(found) = found.await? else {
        return Ok(0);
    };
    for (title, table) in [
        ("All Meta", table(found.meta)),
        ("\nDynamic Meta", table(found.dynamic)),
        ("\nStatic Meta", table(found.fixed)),
    ] {
        out.line(title);
        out.line(&table);
    }
    Ok(0)
}

/// Metadata, some of which may be set to nothing.
fn table<V: Into<Option<String>>>(meta: gojson::Map<V>) -> String {
    let rows = meta.into_iter().map(|(key, value)| {
        let value: Option<String> = value.into();
        (key, value.unwrap_or_else(|| "<unset>".to_owned()))
    });
    let rows: Vec<(String, String)> = rows.collect();
    match rows.is_empty() {
        true => "(none)".to_owned(),
        false => pairs(&rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_change_is_read_as_it_is_written() {
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let meta = changes(&words(&["b", "c"]), &words(&["a=1=2", "d="])).unwrap();
        let meta = Json::Object(meta);
        assert_eq!(meta, json!({"a": "1=2", "b": null, "c": null, "d": ""}));
        for (unset, set, part) in [
            (&["a"][..], &["a=1"][..], "set and unset"),
            (&[], &["a=1", "a=2"], "set twice"),
            (&[], &["a"], "has no value"),
            (&[], &[], "Nothing to change"),
        ] {
            let error = changes(&words(unset), &words(set)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let meta = gojson::Map::from([("a", Some("x".to_owned())), ("bb", None)]);
        assert_eq!(table(meta), "a  = x\nbb = <unset>");
    }
}
