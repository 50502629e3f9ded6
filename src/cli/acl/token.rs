//! `acl token`: what is read and deleted. What is written is in `token_write.rs`.

use super::super::client::{Query, encode};
use super::super::columns::{Table, pairs};
use super::super::conn::{Conn, Past};
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::show::{Format, boolean, list, stamp, text};
use super::token_write::{self, CreateArgs, UpdateArgs};
use anyhow::Result;
use clap::Subcommand;
use jiff::Timestamp;
use serde_json::Value as Json;

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Create a token
    Create(CreateArgs),
    /// Delete a token
    Delete(DeleteArgs),
    /// Show a token
    Info(InfoArgs),
    /// List tokens
    List(ListArgs),
    /// Show the token in use
    #[command(name = "self")]
    Own(OwnArgs),
    /// Change a token
    Update(UpdateArgs),
}

/// Flags of `acl token delete`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its accessor
    accessor: String,
}

/// Flags of `acl token info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InfoArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// Its accessor
    accessor: String,
}

/// Flags of `acl token self`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OwnArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
}

/// Flags of `acl token list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    paged: Paged,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Create(args) => token_write::create(args, out).await?,
        Verb::Delete(args) => {
            let path = format!("/v1/acl/token/{}", encode(&args.accessor));
            let done = args.conn.client()?.delete(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting ACL token"))?;
            out.line(&format!("Token {} successfully deleted", args.accessor));
        }
        Verb::Info(args) => {
            let path = format!("/v1/acl/token/{}", encode(&args.accessor));
            let client = args.conn.client()?;
            let asked: (&str, Query<'_>) = (&path, &[]);
            let failed = "Error fetching token";
            if let Some(token) = args.format.ask(&client, asked, failed, out).await? {
                out.line(&shown(&token));
            }
        }
        Verb::List(args) => all(args, out).await?,
        Verb::Own(args) => {
            let client = args.conn.client()?;
            let found = client.get_json("/v1/acl/token/self", &[]).await;
            let found = found.map_err(|err| err.context("Error fetching self token"))?;
            print(&args.format, &found, out)?;
        }
        Verb::Update(args) => token_write::update(args, out).await?,
    }
    Ok(0)
}

async fn all(args: ListArgs, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let page = args.paged.of(&client, "/v1/acl/tokens", &[]).await;
    let page = page.map_err(|err| err.context("Error listing ACL tokens"))?;
    if args.format.print(&page.rows, out)? {
        return Ok(());
    }
    client.tell_moment(out);
    if page.is_empty() {
        out.line("No tokens found");
        return Ok(());
    }
    let now = client.now();
    let mut table = Table::new(["Name", "Type", "Global", "Accessor ID", "Expired"]);
    for token in page.rows() {
        let expires = text(token, "ExpirationTime").parse::<Timestamp>();
        // Go's zero time is none.
        let expired = expires.is_ok_and(|time| {
            let time = time.as_nanosecond();
            time > 0 && time <= i128::from(now)
        });
        let mut row = ["Name", "Type", "Global", "AccessorID"]
            .map(|key| text(token, key))
            .to_vec();
        row.push(expired.to_string());
        table.row(row);
    }
    out.line(&table.to_string());
    page.tell_next(out);
    Ok(())
}

/// Prints a token in the form that was asked for, else for people.
pub(super) fn print(format: &Format, token: &Json, out: &Out) -> Result<()> {
    if !format.print(token, out)? {
        out.line(&shown(token));
    }
    Ok(())
}

fn shown(token: &Json) -> String {
    let all = text(token, "Type") == "management";
    let expires = match stamp(token, "ExpirationTime") {
        never if never == "N/A" => "<none>".to_owned(),
        time => time,
    };
    let policies: Vec<&str> = list(token, "Policies")
        .iter()
        .filter_map(Json::as_str)
        .collect();
    let policies = match policies.as_slice() {
        _ if all => "n/a".to_owned(),
        [] => "<none>".to_owned(),
        names => format!("[{}]", names.join(" ")),
    };
    let mut rows = vec![
        ("Accessor ID", text(token, "AccessorID")),
        ("Secret ID", text(token, "SecretID")),
        ("Name", text(token, "Name")),
        ("Type", text(token, "Type")),
        ("Global", boolean(token, "Global").to_string()),
        ("Create Time", stamp(token, "CreateTime")),
        ("Expiry Time", expires),
        ("Create Index", text(token, "CreateIndex")),
        ("Modify Index", text(token, "ModifyIndex")),
        ("Policies", policies),
    ];
    let roles = list(token, "Roles");
    if roles.is_empty() {
        let none = if all { "n/a" } else { "<none>" };
        rows.push(("Roles", none.to_owned()));
        return pairs(&rows);
    }
    let mut table = Table::new(["ID", "Name"]);
    for role in roles {
        table.row([text(role, "ID"), text(role, "Name")]);
    }
    format!("{}\n\nRoles\n{table}", pairs(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_is_shown_with_its_policies_and_roles() {
        let token = json!({
            "AccessorID": "a", "SecretID": "s", "Name": "ci", "Type": "client", "Global": false,
            "CreateTime": "2026-01-02T03:04:05Z", "ExpirationTime": null,
            "CreateIndex": 7, "ModifyIndex": 8, "Policies": ["one", "two"],
            "Roles": [{"ID": "r", "Name": "ops"}],
        });
        let text = shown(&token);
        for line in [
            "Accessor ID  = a",
            "Secret ID    = s",
            "Expiry Time  = <none>",
            "Policies     = [one two]",
            "Roles\nID  Name\nr   ops",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        let text = shown(&json!({"Type": "management"}));
        assert!(
            text.contains("Policies     = n/a\nRoles        = n/a"),
            "{text}"
        );
    }
}
