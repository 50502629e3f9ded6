//! `var put`

use super::super::client::{encode, is_status};
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::{number, text};
use super::read::{Form, print};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value as Json, json};
use std::io::Read;

/// Flags of `var put`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover var put nomad/jobs/web user=ann password=@secret.txt
  drover var put -check-index 0 nomad/jobs/web user=ann     only if it is new
  drover var put @web.json                                  from a file

A value @path is read from that file; - reads a specification from standard input.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The variable's path, or @file with a specification
    path: String,
    /// key=value, key=@file, or a file's specification
    items: Vec<String>,
    /// Write whatever is there
    #[arg(long)]
    force: bool,
    /// Write only if the modify index is this; 0 means only if it is new
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// The specification's form: json or hcl
    #[arg(long = "in", value_name = "FORM")]
    input: Option<String>,
    /// How to print the result
    #[arg(long = "out", value_enum, default_value_t = Form::None)]
    form: Form,
    /// A Go template for -out go-template
    #[arg(long)]
    template: Option<String>,
    /// Say more
    #[arg(long)]
    verbose: bool,
}

/// Writes a variable.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let Wanted { path, items, index } = gather(&args)?;
    let client = args.conn.client()?;
    let namespace = if client.namespace.is_empty() {
        "default"
    } else {
        &client.namespace
    };
    let expected = index.unwrap_or(0);
    let body = json!({"Namespace": namespace, "Path": path, "Items": items,
        "ModifyIndex": expected});
    let cas = index.map(|n| n.to_string()).filter(|_| !args.force);
    let query: Vec<(&str, &str)> = cas.iter().map(|n| ("cas", n.as_str())).collect();
    let stored = match client
        .put(&format!("/v1/var/{}", escape(&path)), &query, &body)
        .await
    {
        Ok(stored) => stored,
        Err(err) if is_status(&err, 409) => {
            out.error(
                "Check-and-Set conflict: the variable was changed in the meantime.\nRead it with \
                 `drover var get`, merge, and put it with its index as -check-index, or overwrite \
                 it with -force.",
            );
            return Ok(1);
        }
        Err(err) => return Err(err.context("Error creating variable")),
    };
    if matches!(args.form, Form::None) {
        let index = number(&stored, "ModifyIndex");
        out.line(&format!(
            "Successfully created variable {path:?} with modify index {index}!"
        ));
        return Ok(0);
    }
    print(&stored, args.form, args.template.as_deref(), out)?;
    Ok(0)
}

/// What is to be written, and over which index.
struct Wanted {
    path: String,
    items: Map<String, Json>,
    index: Option<u64>,
}

/// Puts the specification, if one is named, and the items together; items win.
fn gather(args: &Args) -> Result<Wanted> {
    let mut items = Map::new();
    let mut path = args.path.clone();
    let mut index = args.check_index;
    let mut pairs = args.items.iter().peekable();
    let mut specification = None;
    if path == "-" || path.starts_with('@') {
        specification = Some(std::mem::take(&mut path));
    } else if let Some(one) = pairs
        .peek()
        .filter(|p| **p == "-" || (p.starts_with('@') && !p.contains('=')))
    {
        specification = Some((*one).clone());
        pairs.next();
    }
    if let Some(from) = specification {
        let said = read(&from, args.input.as_deref())?;
        if path.is_empty() {
            path = text(&said, "Path");
        }
        if index.is_none() && number(&said, "ModifyIndex") > 0 {
            index = u64::try_from(number(&said, "ModifyIndex")).ok();
        }
        items.extend(said["Items"].as_object().cloned().unwrap_or_default());
    }
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("Error parsing {pair:?}: write items as key=value");
        };
        let value = match value.strip_prefix('@') {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("Error reading {file}"))?
            }
            None => value.to_owned(),
        };
        items.insert(key.to_owned(), value.into());
    }
    if path.is_empty() {
        bail!("The variable needs a path");
    }
    if items.is_empty() {
        bail!("The variable needs at least one item, key=value");
    }
    Ok(Wanted { path, items, index })
}

/// A path with its slashes kept.
pub(super) fn escape(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

/// A specification: the API's JSON, or HCL with `path`, `namespace` and an `items` block.
fn read(from: &str, form: Option<&str>) -> Result<Json> {
    let text = match from.strip_prefix('@') {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("Error reading {file}"))?
        }
        None => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            text
        }
    };
    if form == Some("json") || (form.is_none() && text.trim_start().starts_with('{')) {
        return serde_json::from_str(&text).context("Error parsing the variable");
    }
    let said = crate::jobspec::plain(from, &text).map_err(|err| anyhow::anyhow!("{err}"))?;
    let items = match &said["items"] {
        Json::Array(list) => list.first().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    Ok(json!({"Path": said["path"], "Items": items, "ModifyIndex": said["modify_index"]}))
}
