//! The `namespace` noun.

use super::client::{Query, encode, is_status};
use super::columns::{ColumnTable, pairs};
use super::conn::{Conn, PastConnection};
use super::merge::{self, Raw};
use super::out::Out;
use super::show::{Format, pretty};
use super::spec::{Named, first, read, source};
use super::template;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use drover_events::model::Namespace;
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};

/// What can be done with namespaces.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// List namespaces
    List(ListArgs),
    /// Show a namespace
    Status(OneArgs),
    /// Print a namespace as the servers hold it
    Inspect(InspectArgs),
    /// Create or change a namespace
    Apply(ApplyArgs),
    /// Delete a namespace
    Delete(DeleteArgs),
}

/// Flags of `namespace list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
}

/// Flags of `namespace status`.
#[derive(Debug, clap::Args)]
pub(super) struct OneArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Its name
    name: String,
}

/// Flags of `namespace inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct InspectArgs {
    #[command(flatten)]
    conn: PastConnection,
    /// Print through a Go template
    #[arg(short = 't', value_name = "TEMPLATE")]
    template: Option<String>,
    /// Its name
    name: String,
}

/// Flags of `namespace apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover namespace apply -description 'web shops' shops
  drover namespace apply -json shops.json")]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its name, or a file that describes it; - reads standard input
    input: String,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// Its quota
    #[arg(long)]
    quota: Option<String>,
    /// The file is JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `namespace delete`.
#[derive(Debug, clap::Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its name
    name: String,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => {
            let client = args.conn.client()?;
            let requested: (&str, Query<'_>) = ("/v1/namespaces", &[]);
            let failed = "Error retrieving namespaces";
            let all = args.format.ask(&client, requested, failed, out).await?;
            let Some(all): Option<Vec<Namespace>> = all else {
                return Ok(0);
            };
            let mut table = ColumnTable::new(["Name", "Description"]);
            for one in all {
                table.row([one.name, one.description]);
            }
            out.line(&table.to_string());
        }
        Verb::Status(args) => {
            let path = format!("/v1/namespace/{}", encode(&args.name));
            let client = args.conn.client()?;
            let requested: (&str, Query<'_>) = (&path, &[]);
            let failed = "Error retrieving namespace";
            let one = args.format.ask(&client, requested, failed, out).await?;
            let Some(one): Option<Namespace> = one else {
                return Ok(0);
            };
            let can = one.capabilities.unwrap_or_default();
            out.line(&pairs(&[
                ("Name", one.name),
                ("Description", one.description),
                ("Quota", one.quota),
                ("EnabledDrivers", can.enabled_task_drivers.join(",")),
                ("DisabledDrivers", can.disabled_task_drivers.join(",")),
                ("EnabledNetworkModes", can.enabled_network_modes.join(",")),
                ("DisabledNetworkModes", can.disabled_network_modes.join(",")),
            ]));
        }
        Verb::Inspect(args) => {
            let path = format!("/v1/namespace/{}", encode(&args.name));
            let one = args.conn.client()?.fetch(&path, &[]).await;
            let one: Json = one.map_err(|err| err.context("Error retrieving namespace"))?;
            out.exact(&match &args.template {
                Some(pattern) => template::render(pattern, &one)?,
                None => pretty(&one),
            });
        }
        Verb::Apply(args) => apply(args, out).await?,
        Verb::Delete(args) => {
            let path = format!("/v1/namespace/{}", encode(&args.name));
            let client = args.conn.client()?;
            let done = client.delete::<IgnoredAny>(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting namespace"))?;
            out.line(&format!("Successfully deleted namespace {:?}!", args.name));
        }
    }
    Ok(0)
}

async fn apply(args: ApplyArgs, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let from_file = args.input == "-" || args.json || std::path::Path::new(&args.input).is_file();
    let mut namespace = if from_file {
        match described(&args)? {
            Json::Object(described) => described,
            _ => bail!("Error parsing the namespace: its JSON is an object"),
        }
    } else {
        let path = format!("/v1/namespace/{}", encode(&args.input));
        match merge::current(&client, &path, "Error retrieving namespace").await {
            Err(err) if is_status(&err, 404) => {
                Raw::from_iter([("Name".to_owned(), args.input.into())])
            }
            found => found?,
        }
    };
    let given = [
        ("Description", args.description.map(Json::from)),
        ("Quota", args.quota.map(Json::from)),
    ];
    merge::set(&mut namespace, given);
    let namespace = Json::Object(namespace);
    let Named { name } = read(&namespace).context("Error applying namespace")?;
    if name.is_empty() {
        bail!("Error applying namespace: it has no name");
    }
    let done = client
        .put::<IgnoredAny>("/v1/namespace", &[], &namespace)
        .await;
    done.map_err(|err| err.context("Error applying namespace"))?;
    out.line(&format!("Successfully applied namespace {name:?}!"));
    Ok(())
}

/// A namespace in JSON, or in HCL with the names of the JSON form in lower case.
fn described(args: &ApplyArgs) -> Result<Json> {
    let text = source(&args.input)?;
    if args.json || text.trim_start().starts_with('{') {
        return serde_json::from_str(&text).context("Error parsing the namespace");
    }
    let spec = crate::jobspec::parse_other_spec(&args.input, &text);
    body(&spec.map_err(|err| anyhow::anyhow!("{err}"))?)
}

/// What the specification says, as the API takes it.
fn body(spec: &Json) -> Result<Json> {
    let mut namespace = json!({});
    for (key, value) in spec.as_object().into_iter().flatten() {
        match key.as_str() {
            "name" => namespace["Name"] = value.clone(),
            "description" => namespace["Description"] = value.clone(),
            "quota" => namespace["Quota"] = value.clone(),
            "meta" => namespace["Meta"] = first(value),
            "capabilities" => {
                let value = first(value);
                namespace["Capabilities"] = json!({
                    "EnabledTaskDrivers": value["enabled_task_drivers"],
                    "DisabledTaskDrivers": value["disabled_task_drivers"],
                    "EnabledNetworkModes": value["enabled_network_modes"],
                    "DisabledNetworkModes": value["disabled_network_modes"],
                });
            }
            "node_pool_config" => {
                let value = first(value);
                namespace["NodePoolConfiguration"] = json!({
                    "Default": value["default"],
                    "Allowed": value["allowed"],
                    "Denied": value["denied"],
                });
            }
            other => bail!("Error parsing the namespace: unexpected key {other:?}"),
        }
    }
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::super::spec::unread_of;
    use super::*;

    #[test]
    fn a_specification_says_what_a_namespace_has() {
        let spec = json!({
            "name": "shops", "description": "d", "quota": "q", "meta": [{"a": "b"}],
            "capabilities": [{
                "enabled_task_drivers": ["exec"], "disabled_task_drivers": ["raw_exec"],
                "enabled_network_modes": ["host"], "disabled_network_modes": ["bridge"],
            }],
            "node_pool_config": [{"default": "gpu", "allowed": ["gpu"], "denied": ["all"]}],
        });
        let body = body(&spec).unwrap();
        assert_eq!(unread_of::<Namespace>(&body), [""; 0]);
        assert_eq!(body["Capabilities"]["EnabledNetworkModes"], json!(["host"]));
    }
}
