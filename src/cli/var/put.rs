//! `var put`

use super::super::answer;
use super::super::client::{Refused, encode, is_status};
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::spec;
use super::read::{VariableForm, print};
use anyhow::{Context, Result, bail};
use drover_events::model::VariableDecrypted;
use drover_events::model::status::DEFAULT_NAMESPACE;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Read;

/// What is printed of a variable that was stored, whatever else of the answer cannot be read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Written {
    modify_index: Option<u64>,
}

/// Flags of `var put`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover var put nomad/jobs/web user=ann password=@secret.txt
  drover var put -check-index 0 nomad/jobs/web user=ann     only if it is new
  drover var put @web.json                                  from a file

Without -check-index or -force the index in the specification counts, and 0 where there is none:
a variable that exists is not overwritten by accident. A value @path is read from that file, - from
standard input; key= removes an item. Into a pipe the variable is printed as JSON.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The variable's path, or @file with a specification
    path: String,
    /// key=value, key=@file, or a file's specification
    items: Vec<String>,
    /// Write it whatever is stored there
    #[arg(long)]
    force: bool,
    /// Write only if the modify index is this; 0 means only if it is new
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// The specification's form: json or hcl
    #[arg(long = "in", value_name = "FORM")]
    input: Option<String>,
    /// How to print the result; by default none on a terminal and json elsewhere
    #[arg(long = "out", value_enum)]
    form: Option<VariableForm>,
    /// A Go template for -out go-template
    #[arg(long)]
    template: Option<String>,
    /// Print what is done on the way
    #[arg(long)]
    verbose: bool,
}

/// Writes a variable.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let form = args.form.unwrap_or(match out.is_terminal() {
        true => VariableForm::None,
        false => VariableForm::Json,
    });
    form.check(args.template.as_deref())?;
    let VariableWrite {
        namespace,
        path,
        items,
        index,
    } = gather(&args)?;
    let client = args.conn.client()?;
    let body = json!({"Namespace": namespace, "Path": path, "Items": items,
        "ModifyIndex": index});
    let cas = index.to_string();
    let mut query = vec![("namespace", namespace.as_str())];
    if !args.force {
        query.push(("cas", &cas));
    }
    let stored: Json = match client
        .put(&format!("/v1/var/{}", escape(&path)), &query, &body)
        .await
    {
        Ok(stored) => stored,
        Err(err) if is_status(&err, 409) => {
            out.error(&conflict(
                &err,
                index,
                "Read it with `drover var get`, merge, and put it with its index as -check-index, \
                 or overwrite it with -force.",
            ));
            return Ok(1);
        }
        Err(err) => return Err(err.context("Error creating variable")),
    };
    // It is stored: an answer that says less is no reason to fail.
    let written: Written = answer::of_ref(&stored).unwrap_or_default();
    let success = match written.modify_index {
        None => format!("Created variable {path:?}"),
        Some(index) => format!("Created variable {path:?} with modify index {index}"),
    };
    if matches!(form, VariableForm::None) {
        out.line(&success);
        return Ok(0);
    }
    if args.verbose {
        out.error(&success);
    }
    print(stored, form, args.template.as_deref(), out)?;
    Ok(0)
}

/// What to say of a variable that is not at the index, and then what to do: the answer holds what
/// is there.
pub(super) fn conflict(err: &anyhow::Error, index: u64, advice: &str) -> String {
    let there = err
        .downcast_ref::<Refused>()
        .and_then(|r| answer::read::<VariableDecrypted>(r.text.as_bytes()).ok())
        .map_or(0, |var| var.modify_index);
    let there = match there {
        0 => "there is no such variable".to_owned(),
        n => format!("the variable is at index {n}"),
    };
    let wanted = match index {
        0 => "only a new variable is put".to_owned(),
        n => format!("the check-index given is {n}"),
    };
    format!("Check-and-Set conflict: {wanted}, and {there}.\n{advice}")
}

/// What is to be written, and over which index.
struct VariableWrite {
    namespace: String,
    path: String,
    items: BTreeMap<String, String>,
    index: u64,
}

/// Puts the specification, if one is named, and the items together; items win.
fn gather(args: &Args) -> Result<VariableWrite> {
    let mut items = BTreeMap::new();
    let mut path = args.path.clone();
    let mut namespace = args.conn.namespace.clone();
    let mut index = 0;
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
        let variable = read(&from, args.input.as_deref())?;
        // A specification put elsewhere is a copy: its index means nothing there.
        let mut copied = false;
        for (given, own) in [
            (&mut path, variable.path),
            (&mut namespace, variable.namespace),
        ] {
            if given.is_empty() {
                *given = own;
            } else {
                copied |= *given != own;
            }
        }
        if !copied {
            index = variable.modify_index;
        }
        items.extend(variable.items);
    }
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("Error parsing {pair:?}: write items as key=value");
        };
        if value.is_empty() {
            items.remove(key);
        } else {
            items.insert(key.to_owned(), item(value)?);
        }
    }
    if path.is_empty() {
        bail!("The variable needs a path");
    }
    if items.is_empty() {
        bail!("The variable needs at least one item, key=value");
    }
    if namespace == "*" {
        bail!("A variable is written to one namespace: \"*\" names all");
    }
    if namespace.is_empty() {
        DEFAULT_NAMESPACE.clone_into(&mut namespace);
    }
    Ok(VariableWrite {
        namespace,
        path: path.trim().trim_matches('/').to_owned(),
        items,
        index: args.check_index.unwrap_or(index),
    })
}

/// An item's value: as given, from a file, or from standard input.
fn item(value: &str) -> Result<String> {
    if value == "-" {
        return source("-");
    }
    match value.starts_with('@') {
        true => source(value),
        false => Ok(value.to_owned()),
    }
}

/// The text of `@file`, or of standard input.
fn source(from: &str) -> Result<String> {
    if let Some(file) = from.strip_prefix('@') {
        return std::fs::read_to_string(file).with_context(|| format!("Error reading {file}"));
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

/// A path with its slashes kept.
pub(super) fn escape(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

/// A specification: the API's JSON, or HCL with `path`, `namespace` and an `items` block.
fn read(from: &str, form: Option<&str>) -> Result<VariableDecrypted> {
    let text = source(from)?;
    let failed = "Error parsing the variable";
    if form == Some("json") || (form.is_none() && text.trim_start().starts_with('{')) {
        let variable: Json = serde_json::from_str(&text).context(failed)?;
        return spec::read(&variable).context(failed);
    }
    let fields = crate::jobspec::parse_other_spec(from, &text);
    let fields = fields.map_err(|err| anyhow::anyhow!("{err}"))?;
    let items = match &fields["items"] {
        Json::Array(list) => list.first().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    let variable = json!({"Namespace": fields["namespace"], "Path": fields["path"], "Items": items,
        "ModifyIndex": fields["modify_index"]});
    spec::read(&variable).context(failed)
}
