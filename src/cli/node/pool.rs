//! `node pool`.

use crate::cli::client::encode;
use crate::cli::columns::{ColumnTable, pairs};
use crate::cli::conn::{Conn, PastConnection};
use crate::cli::job;
use crate::cli::node;
use crate::cli::out::Out;
use crate::cli::paged::Paged;
use crate::cli::query::find;
use crate::cli::show::Format;
use crate::cli::spec::{Named, first, read, source, write_example};
use crate::http::answers::{JobListStub, NodeListStub};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use drover_events::model::NodePool;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value as Json, json};

/// What can be done with node pools.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// List node pools
    List(ListArgs),
    /// Show a node pool
    Info(InfoArgs),
    /// List the nodes of a node pool
    Nodes(MembersArgs),
    /// List the jobs that run in a node pool
    Jobs(MembersArgs),
    /// Create or change a node pool
    Apply(ApplyArgs),
    /// Delete a node pool
    Delete(DeleteArgs),
    /// Write an example of a specification
    Init(InitArgs),
}

/// Flags of `node pool list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    paged: Paged,
}

/// Flags of `node pool info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InfoArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Its name or a prefix of it
    pool: String,
}

/// Flags of `node pool nodes` and `node pool jobs`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct MembersArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    paged: Paged,
    /// Its name or a prefix of it
    pool: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `node pool apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover node pool init
  drover node pool apply pool.nomad.hcl")]
pub(in crate::cli) struct ApplyArgs {
    #[command(flatten)]
    conn: Conn,
    /// The file that describes it, HCL or JSON; - reads standard input
    input: String,
    /// The file is JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `node pool delete`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its name
    pool: String,
}

/// Flags of `node pool init`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InitArgs {
    /// The file to write; pool.nomad.hcl or pool.nomad.json by default
    file: Option<String>,
    /// The form: hcl or json
    #[arg(long = "out", value_name = "FORM", default_value = "hcl")]
    form: String,
    /// Print nothing
    #[arg(long)]
    quiet: bool,
}

/// Runs a verb.
pub(in crate::cli) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::List(args) => list(args, out).await,
        Verb::Info(args) => info(args, out).await,
        Verb::Nodes(args) => {
            let table = |nodes: &[NodeListStub]| node::plain_table(nodes, args.verbose).to_string();
            members(&args, "nodes", table, out).await
        }
        Verb::Jobs(args) => {
            let spaces = args.conn.namespace == "*";
            let table = |jobs: &[JobListStub]| job::status::job_list(jobs, spaces);
            members(&args, "jobs", table, out).await
        }
        Verb::Apply(args) => apply(args, out).await,
        Verb::Delete(args) => {
            let path = format!("/v1/node/pool/{}", encode(&args.pool));
            let client = args.conn.client()?;
            let done = client.delete::<IgnoredAny>(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting node pool"))?;
            out.line(&format!("Successfully deleted node pool {:?}!", args.pool));
            Ok(0)
        }
        Verb::Init(args) => {
            let texts = ("pool.nomad", EXAMPLE_HCL, EXAMPLE_JSON);
            let file = write_example(args.file.as_deref(), &args.form, texts)?;
            if !args.quiet {
                out.line(&format!(
                    "Example node pool specification written to {file}"
                ));
            }
            Ok(0)
        }
    }
}

async fn list(args: ListArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let page = args.paged.of(&client, "/v1/node/pools", &[]).await;
    let page = page.map_err(|err| err.context("Error querying node pools"))?;
    let Some(pools) = page.take::<NodePool>(&args.format, out)? else {
        return Ok(0);
    };
    client.report_moment(out);
    let mut table = ColumnTable::new(["Name", "Description"]);
    for pool in pools {
        table.row([pool.name, pool.description]);
    }
    match table.is_empty() {
        true => out.line("No node pools"),
        false => out.line(&table.to_string()),
    }
    page.report_next(out);
    Ok(0)
}

async fn info(args: InfoArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let NodePool { name, .. } = find(&client, &args.pool).await?;
    let path = format!("/v1/node/pool/{}", encode(&name));
    let failed = "Error querying node pool";
    let pool = args
        .format
        .ask::<NodePool>(&client, (&path, &[]), failed, out);
    let Some(pool) = pool.await? else {
        return Ok(0);
    };
    out.line(&pairs(&[
        ("Name", pool.name),
        ("Description", pool.description),
    ]));
    out.head("Metadata");
    out.line(&match pool.meta.is_empty() {
        true => "No metadata".to_owned(),
        false => pairs(&pool.meta.into_iter().collect::<Vec<_>>()),
    });
    out.head("Scheduler Configuration");
    let Some(config) = pool.scheduler_configuration else {
        out.line("No scheduler configuration");
        return Ok(0);
    };
    let mut rows = Vec::new();
    if !config.scheduler_algorithm.is_empty() {
        rows.push(("Scheduler Algorithm", config.scheduler_algorithm));
    }
    if let Some(over) = config.memory_oversubscription_enabled {
        rows.push(("Memory Oversubscription", over.to_string()));
    }
    out.line(&pairs(&rows));
    Ok(0)
}

/// Lists what belongs to a pool.
async fn members<T: DeserializeOwned>(
    args: &MembersArgs,
    what: &'static str,
    table: impl Fn(&[T]) -> String,
    out: &Out,
) -> Result<u8> {
    let client = args.conn.client()?;
    let NodePool { name, .. } = find(&client, &args.pool).await?;
    let path = format!("/v1/node/pool/{}/{what}", encode(&name));
    let page = args.paged.of(&client, &path, &[]).await;
    let page = page.map_err(|err| err.context(format!("Error querying {what}")))?;
    let Some(all) = page.take::<T>(&args.format, out)? else {
        return Ok(0);
    };
    client.report_moment(out);
    match all.is_empty() {
        true => out.line(&format!("No {what}")),
        false => out.line(&table(&all)),
    }
    page.report_next(out);
    Ok(0)
}

async fn apply(args: ApplyArgs, out: &Out) -> Result<u8> {
    let text_of = source(&args.input)?;
    let pool = match args.json || text_of.trim_start().starts_with('{') {
        true => serde_json::from_str(&text_of).context("Error parsing the node pool")?,
        false => described(&args.input, &text_of)?,
    };
    let Named { name } = read(&pool).context("Error parsing the node pool")?;
    if name.is_empty() {
        bail!("Error applying node pool: it has no name");
    }
    let client = args.conn.client()?;
    let done = client.put::<IgnoredAny>("/v1/node/pools", &[], &pool).await;
    done.map_err(|err| err.context("Error applying node pool"))?;
    out.line(&format!("Successfully applied node pool {name:?}!"));
    Ok(0)
}

/// A node pool in HCL.
fn described(name: &str, text: &str) -> Result<Json> {
    let spec = crate::jobspec::parse_other_spec(name, text);
    let spec = spec.map_err(|err| anyhow::anyhow!("{err}"))?;
    let blocks = spec["node_pool"].as_array().map(Vec::as_slice);
    let block = match blocks.unwrap_or_default() {
        [one] => one,
        _ => bail!(
            "Error parsing the node pool: it takes exactly one block, node_pool \"NAME\" {{ … }}"
        ),
    };
    let (name, fields) = match block.as_object().map(|map| map.iter().collect::<Vec<_>>()) {
        Some(map) if map.len() == 1 => (map[0].0.clone(), first(map[0].1)),
        _ => bail!("Error parsing the node pool: the block has one label, its name"),
    };
    let mut pool = json!({ "Name": name });
    for (key, value) in fields.as_object().into_iter().flatten() {
        match key.as_str() {
            "description" => pool["Description"] = value.clone(),
            "meta" => pool["Meta"] = first(value),
            "node_identity_ttl" => pool["NodeIdentityTTL"] = value.clone(),
            "scheduler_config" => {
                let value = first(value);
                let over = &value["memory_oversubscription_enabled"];
                pool["SchedulerConfiguration"] = json!({
                    "SchedulerAlgorithm": value["scheduler_algorithm"].as_str().unwrap_or(""),
                    "MemoryOversubscriptionEnabled": over,
                });
            }
            other => bail!("Error parsing the node pool: unexpected key {other:?}"),
        }
    }
    Ok(pool)
}

const EXAMPLE_HCL: &str = r#"node_pool "example" {
  description = "Example node pool"

  # Metadata that operators and tools read.
  meta {
    environment = "prod"
    owner       = "sre"
  }

  # How jobs of this pool are placed, where it differs from the cluster.
  # scheduler_config {
  #   scheduler_algorithm             = "spread"
  #   memory_oversubscription_enabled = true
  # }
}
"#;

const EXAMPLE_JSON: &str = r#"{
  "Name": "example",
  "Description": "Example node pool",
  "Meta": {
    "environment": "prod",
    "owner": "sre"
  }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::spec::unread_of;

    #[test]
    fn a_specification_says_what_a_node_pool_has() {
        let text = "node_pool \"gpu\" {\n description = \"d\"\n meta {\n a = \"b\"\n }\n \
                    node_identity_ttl = \"2h\"\n scheduler_config {\n \
                    scheduler_algorithm = \"spread\"\n \
                    memory_oversubscription_enabled = true\n }\n}\n";
        let pool = described("pool.hcl", text).unwrap();
        assert_eq!(unread_of::<NodePool>(&pool), [""; 0]);
        assert_eq!(pool["Name"], "gpu");
    }
}
