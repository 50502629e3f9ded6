//! `var get`, `var list` and `var purge`

use super::super::answer;
use super::super::client::is_status;
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::{Conn, PastConnection};
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::show::{pretty, time};
use super::super::template;
use super::put::{conflict, escape};
use anyhow::{Result, bail};
use clap::ValueEnum;
use drover_events::model::{VariableDecrypted, VariableMetadata};
use serde::de::IgnoredAny;
use serde_json::Value as Json;

/// How a variable is printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in crate::cli) enum VariableForm {
    /// Keys and values
    Table,
    /// Paths alone
    Terse,
    /// The API's object
    Json,
    /// A specification that can be put again
    Hcl,
    /// Through -template
    GoTemplate,
    /// Nothing but a word of success
    None,
}

impl VariableForm {
    /// Whether it can be printed: commands that change something call this first.
    pub(super) fn check(self, pattern: Option<&str>) -> Result<()> {
        match (self, pattern) {
            (VariableForm::GoTemplate, Some(pattern)) => template::check(pattern),
            (VariableForm::GoTemplate, None) => bail!("-out go-template needs -template"),
            _ => Ok(()),
        }
    }
}

/// What people read on a terminal, and what programs read elsewhere.
fn usual(form: Option<VariableForm>, out: &Out) -> VariableForm {
    form.unwrap_or(match out.is_terminal() {
        true => VariableForm::Table,
        false => VariableForm::Json,
    })
}

/// Flags of `var get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover var get nomad/jobs/web
  drover var get -item password nomad/jobs/web")]
pub(in crate::cli) struct GetArgs {
    #[command(flatten)]
    conn: PastConnection,
    /// The variable's path
    path: String,
    /// Print only this item's value
    #[arg(long, value_name = "KEY")]
    item: Option<String>,
    /// How to print it; by default table on a terminal and json elsewhere
    #[arg(long = "out", value_enum)]
    form: Option<VariableForm>,
    /// A Go template for -out go-template
    #[arg(long)]
    template: Option<String>,
}

/// Flags of `var list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    /// Only paths that begin so
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    paged: Paged,
    /// How to print them; by default table on a terminal and json elsewhere
    #[arg(long = "out", value_enum)]
    form: Option<VariableForm>,
    /// A Go template for -out go-template
    #[arg(long)]
    template: Option<String>,
}

/// Flags of `var purge`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct PurgeArgs {
    #[command(flatten)]
    conn: Conn,
    /// The variable's path
    path: String,
    /// Delete only if the modify index is this
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
}

/// Shows a variable.
pub(super) async fn get(args: GetArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let found: Json = match client
        .fetch(&format!("/v1/var/{}", escape(&args.path)), &[])
        .await
    {
        Ok(found) => found,
        Err(err) if is_status(&err, 404) => bail!("Variable not found"),
        Err(err) => return Err(err.context("Error retrieving variable")),
    };
    if let Some(item) = &args.item {
        let var: VariableDecrypted = answer::of(found)?;
        match var.items.get(item) {
            Some(value) if out.is_terminal() => out.line(value),
            Some(value) => out.raw(value.as_bytes()),
            None => bail!("Variable does not contain a {item:?} item"),
        }
        return Ok(0);
    }
    print(found, usual(args.form, out), args.template.as_deref(), out)?;
    Ok(0)
}

/// Prints a variable in a form.
pub(super) fn print(var: Json, form: VariableForm, pattern: Option<&str>, out: &Out) -> Result<()> {
    match form {
        VariableForm::None => {}
        VariableForm::Terse => {
            let VariableDecrypted { path, .. } = answer::of(var)?;
            out.line(&path);
        }
        VariableForm::Json => out.exact(&pretty(&var)),
        VariableForm::GoTemplate => match pattern {
            Some(pattern) => out.exact(&template::render(pattern, &var)?),
            None => bail!("-out go-template needs -template"),
        },
        VariableForm::Hcl => {
            let var: VariableDecrypted = answer::of(var)?;
            specification(&var, out);
        }
        VariableForm::Table => {
            let var: VariableDecrypted = answer::of(var)?;
            out.line(&pairs(&[
                ("Namespace", var.namespace),
                ("Path", var.path),
                ("Create Time", time(var.create_time)),
                ("Check Index", var.modify_index.to_string()),
            ]));
            out.head("Items");
            out.line(&pairs(&var.items.into_iter().collect::<Vec<_>>()));
        }
    }
    Ok(())
}

/// Prints a variable as it can be put again.
fn specification(var: &VariableDecrypted, out: &Out) {
    let quote = |text: &String| {
        let text = Json::String(text.clone()).to_string();
        text.replace("${", "$${").replace("%{", "%%{")
    };
    out.exact(&format!("namespace    = {}", quote(&var.namespace)));
    out.exact(&format!("path         = {}", quote(&var.path)));
    out.line(&format!("modify_index = {}\n", var.modify_index));
    // A block takes plain names only.
    let plain = var.items.keys().all(|key| is_plain(key));
    out.line(if plain { "items {" } else { "items = {" });
    for (key, value) in &var.items {
        let name = match is_plain(key) {
            true => key.clone(),
            false => quote(key),
        };
        out.exact(&format!("  {name} = {}", quote(value)));
    }
    out.line("}");
}

/// Whether HCL takes it as a name without quotes.
fn is_plain(key: &str) -> bool {
    let mut chars = key.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// Lists variables.
pub(super) async fn list(args: ListArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let more = [("prefix", args.prefix.as_str())];
    let page = args.paged.of(&client, "/v1/vars", &more).await;
    let page = page.map_err(|err| err.context("Error retrieving vars"))?;
    match usual(args.form, out) {
        VariableForm::Json => out.exact(&pretty(&page.json()?)),
        VariableForm::Terse => {
            let rows: Vec<VariableMetadata> = page.rows()?;
            rows.iter().for_each(|var| out.line(&var.path));
        }
        VariableForm::GoTemplate => match &args.template {
            Some(pattern) => out.exact(&template::render(pattern, &page.json()?)?),
            None => bail!("-out go-template needs -template"),
        },
        VariableForm::Table | VariableForm::Hcl | VariableForm::None => {
            let mut table = ColumnTable::new(["Namespace", "Path", "Last Updated"]);
            for var in page.rows::<VariableMetadata>()? {
                table.row([var.namespace, var.path, time(var.modify_time)]);
            }
            match table.is_empty() {
                true => out.line("No matching variables found"),
                false => out.line(&table.to_string()),
            }
            page.report_next(out);
        }
    }
    Ok(0)
}

/// Deletes a variable.
pub(super) async fn purge(args: PurgeArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let cas = args.check_index.map(|n| n.to_string());
    let query: Vec<(&str, &str)> = cas.iter().map(|n| ("cas", n.as_str())).collect();
    match client
        .delete::<IgnoredAny>(&format!("/v1/var/{}", escape(&args.path)), &query, None)
        .await
    {
        Ok(_) => out.line(&format!("Successfully purged variable {:?}!", args.path)),
        Err(err) if is_status(&err, 409) => {
            out.error(&conflict(
                &err,
                args.check_index.unwrap_or(0),
                "Read it with `drover var get`, and purge it with its index as -check-index, or \
                 without one.",
            ));
            return Ok(1);
        }
        Err(err) => return Err(err.context("Error purging variable")),
    }
    Ok(0)
}
