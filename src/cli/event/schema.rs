//! `event schema`: the JSON Schemas of all events, from the program itself.

use crate::cli::columns::ColumnTable;
use crate::cli::out::Out;
use crate::cli::show::counted;
use crate::history::record::schema;
use anyhow::{Context, Result, anyhow};
use drover_events::EventKind;
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};

/// Flags of `event schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover event schema                              all kinds and their versions
  drover event schema -kind JobRegistered          the schema of one, for today's version
  drover event schema -kind EvalsDeleted -version 1
  drover event schema -out schemas                 a file for each kind and version

A schema of today's version describes the whole document that exports, Kafka and the audit trail
show; one of an older version the payload as it lies in the log, before it is brought to today's
form. An agent serves the same at /v1/schema/events.")]
pub(in crate::cli) struct SchemaArgs {
    /// The schema of this kind
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Of this version instead of today's
    #[arg(long, requires = "kind", value_name = "N")]
    version: Option<u16>,
    /// Write a file for each kind and version into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Prints or writes schemas.
pub(in crate::cli) fn run(args: &SchemaArgs, out: &Out) -> Result<u8> {
    let kinds = match &args.kind {
        None => EventKind::ALL.to_vec(),
        Some(name) => vec![EventKind::from_name(name).ok_or_else(|| {
            anyhow!("{name:?} is no kind of event; `drover event schema` lists them")
        })?],
    };
    if let Some(dir) = &args.out {
        return write(&kinds, args.version, dir, out);
    }
    match kinds.as_slice() {
        [kind] if args.kind.is_some() => {
            let schema = schema_of(*kind, args.version.unwrap_or_else(|| kind.version()))?;
            out.exact(&serde_json::to_string_pretty(&schema)?);
        }
        _ if args.json => out.exact(&schema::index().to_string()),
        _ => out.line(&table().to_string()),
    }
    Ok(0)
}

fn table() -> ColumnTable {
    let mut table = ColumnTable::new(["Number", "Kind", "Version", "Since level", "Schema"]);
    for kind in EventKind::ALL {
        table.row([
            kind.number().to_string(),
            kind.name().to_owned(),
            kind.version().to_string(),
            kind.since().to_string(),
            schema::route(*kind),
        ]);
    }
    table
}

fn schema_of(kind: EventKind, version: u16) -> Result<Json> {
    if version == kind.version() {
        return Ok(schema::document(kind));
    }
    schema::former(kind, version).ok_or_else(|| {
        anyhow!(
            "{kind} never had version {version}, its newest is {}",
            kind.version()
        )
    })
}

fn write(kinds: &[EventKind], version: Option<u16>, dir: &Path, out: &Out) -> Result<u8> {
    let failed = || format!("Error writing schemas to {}", dir.display());
    fs::create_dir_all(dir).with_context(failed)?;
    let mut written = 0_usize;
    for kind in kinds {
        let versions = match version {
            Some(version) => version..=version,
            None => 1..=kind.version(),
        };
        for version in versions {
            let text = serde_json::to_string_pretty(&schema_of(*kind, version)?)?;
            let path = dir.join(format!("{kind}.v{version}.json"));
            fs::write(path, text + "\n").with_context(failed)?;
            written += 1;
        }
    }
    let written = counted(written, "schema");
    out.line(&format!("{written} written to {}", dir.display()));
    Ok(0)
}
