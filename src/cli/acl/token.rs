//! `acl token`: what is read and deleted. What is written is in `token_write.rs`.

use super::super::answer;
use super::super::client::{Query, encode};
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::{Conn, PastConnection};
use super::super::out::Out;
use super::super::paged::Paged;
use super::super::show::{Format, stamp};
use super::token_write::{self, CreateArgs, UpdateArgs};
use anyhow::Result;
use clap::Subcommand;
use drover_events::model::status::token_type;
use drover_events::model::{AclToken, AclTokenListStub};
use serde::de::IgnoredAny;
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
    conn: PastConnection,
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
    conn: PastConnection,
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
            let client = args.conn.client()?;
            let done = client.delete::<IgnoredAny>(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting ACL token"))?;
            out.line(&format!("Token {} successfully deleted", args.accessor));
        }
        Verb::Info(args) => {
            let path = format!("/v1/acl/token/{}", encode(&args.accessor));
            let client = args.conn.client()?;
            let requested: (&str, Query<'_>) = (&path, &[]);
            let failed = "Error fetching token";
            let token = args.format.ask::<AclToken>(&client, requested, failed, out);
            if let Some(token) = token.await? {
                out.line(&shown(&token));
            }
        }
        Verb::List(args) => all(args, out).await?,
        Verb::Own(args) => {
            let client = args.conn.client()?;
            let found = client.get("/v1/acl/token/self", &[]).await;
            let found = found.map_err(|err| err.context("Error fetching self token"))?;
            if let Some(token) = args.format.take::<AclToken>(&found, out)? {
                out.line(&shown(&token));
            }
        }
        Verb::Update(args) => token_write::update(args, out).await?,
    }
    Ok(0)
}

async fn all(args: ListArgs, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let page = args.paged.of(&client, "/v1/acl/tokens", &[]).await;
    let page = page.map_err(|err| err.context("Error listing ACL tokens"))?;
    let Some(tokens) = page.take::<AclTokenListStub>(&args.format, out)? else {
        return Ok(());
    };
    client.report_moment(out);
    if tokens.is_empty() {
        out.line("No tokens found");
        return Ok(());
    }
    let now = client.now();
    let mut table = ColumnTable::new(["Name", "Type", "Global", "Accessor ID", "Expired"]);
    for token in tokens {
        let expires = token.expiration_time.map_or(0, |time| time.nanos());
        // Go's zero time stands for no expiration.
        let expired = expires > 0 && expires <= now;
        table.row([
            token.name,
            token.r#type,
            token.global.to_string(),
            token.accessor_id,
            expired.to_string(),
        ]);
    }
    out.line(&table.to_string());
    page.report_next(out);
    Ok(())
}

/// Prints a token in the form that the user named, else for people.
pub(super) fn print(format: &Format, token: Json, out: &Out) -> Result<()> {
    if !format.print(&token, out)? {
        let token: AclToken = answer::of(token)?;
        out.line(&shown(&token));
    }
    Ok(())
}

fn shown(token: &AclToken) -> String {
    let all = token.r#type == token_type::MANAGEMENT;
    let expires = match stamp(token.expiration_time.map_or(0, |time| time.0)) {
        never if never == "N/A" => "<none>".to_owned(),
        time => time,
    };
    let policies = match &token.policies[..] {
        _ if all => "n/a".to_owned(),
        [] => "<none>".to_owned(),
        names => format!("[{}]", names.join(" ")),
    };
    let mut rows = vec![
        ("Accessor ID", token.accessor_id.clone()),
        ("Secret ID", token.secret_id.clone()),
        ("Name", token.name.clone()),
        ("Type", token.r#type.clone()),
        ("Global", token.global.to_string()),
        ("Create Time", stamp(token.create_time.0)),
        ("Expiry Time", expires),
        ("Create Index", token.create_index.to_string()),
        ("Modify Index", token.modify_index.to_string()),
        ("Policies", policies),
    ];
    let roles = &token.roles;
    if roles.is_empty() {
        let none = if all { "n/a" } else { "<none>" };
        rows.push(("Roles", none.to_owned()));
        return pairs(&rows);
    }
    let mut table = ColumnTable::new(["ID", "Name"]);
    for role in roles {
        table.row([role.id.clone(), role.name.clone()]);
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
        let text = shown(&answer::of::<AclToken>(token).unwrap());
        for line in [
            "Accessor ID  = a",
            "Secret ID    = s",
            "Expiry Time  = <none>",
            "Policies     = [one two]",
            "Roles\nID  Name\nr   ops",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        let management = json!({"Type": "management"});
        let text = shown(&answer::of::<AclToken>(management).unwrap());
        assert!(
            text.contains("Policies     = n/a\nRoles        = n/a"),
            "{text}"
        );
    }
}
