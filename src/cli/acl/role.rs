//! `acl role`

use super::super::answer;
use super::super::client::{Query, encode};
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::{Conn, PastConnection};
use super::super::merge::{self, Raw};
use super::super::out::Out;
use super::super::show::Format;
use anyhow::{Result, bail};
use clap::Subcommand;
use drover_events::model::{AclRole, AclRoleListStub, AclRolePolicyLink};
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};

/// What can be done with roles.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(in crate::cli) enum Verb {
    /// Create a role
    Create(CreateArgs),
    /// Delete a role
    Delete(DeleteArgs),
    /// Show a role
    Info(InfoArgs),
    /// List roles
    List(ListArgs),
    /// Change a role
    Update(UpdateArgs),
}

/// Flags of `acl role create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover acl role create -name deployers -policy deploy -policy read")]
pub(in crate::cli) struct CreateArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Its name
    #[arg(long)]
    name: String,
    /// What it is for
    #[arg(long, default_value = "")]
    description: String,
    /// A policy it holds; may be given several times
    #[arg(long = "policy", value_name = "NAME", required = true)]
    policies: Vec<String>,
}

/// Flags of `acl role delete`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its id
    id: String,
}

/// Flags of `acl role info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InfoArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Look it up by its name
    #[arg(long)]
    by_name: bool,
    /// Its id, or with -by-name its name
    id: String,
}

/// Flags of `acl role list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
}

/// Flags of `acl role update`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct UpdateArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Its new name
    #[arg(long)]
    name: Option<String>,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// A policy it holds as well; may be given several times
    #[arg(long = "policy", value_name = "NAME")]
    policies: Vec<String>,
    /// Replace all of it by what is given
    #[arg(long)]
    no_merge: bool,
    /// Its id
    id: String,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Create(args) => {
            args.format.check()?;
            let role = json!({
                "Name": args.name,
                "Description": args.description,
                "Policies": links(&args.policies),
            });
            let made = args.conn.client()?.put("/v1/acl/role", &[], &role).await;
            let made = made.map_err(|err| err.context("Error creating ACL role"))?;
            print(&args.format, made, out)?;
        }
        Verb::Delete(args) => {
            let path = format!("/v1/acl/role/{}", encode(&args.id));
            let client = args.conn.client()?;
            let done = client.delete::<IgnoredAny>(&path, &[], None).await;
            done.map_err(|err| err.context("Error deleting ACL role"))?;
            out.line(&format!("ACL role {} successfully deleted", args.id));
        }
        Verb::Info(args) => {
            let by = if args.by_name { "name/" } else { "" };
            let path = format!("/v1/acl/role/{by}{}", encode(&args.id));
            let client = args.conn.client()?;
            let requested: (&str, Query<'_>) = (&path, &[]);
            let failed = "Error reading ACL role";
            let role = args.format.ask::<AclRole>(&client, requested, failed, out);
            if let Some(role) = role.await? {
                out.line(&shown(&role));
            }
        }
        Verb::List(args) => all(args, out).await?,
        Verb::Update(args) => update(args, out).await?,
    }
    Ok(0)
}

fn links(policies: &[String]) -> Vec<AclRolePolicyLink> {
    let names = policies.iter().cloned();
    names.map(|name| AclRolePolicyLink { name }).collect()
}

fn names(policies: &[AclRolePolicyLink]) -> String {
    let names: Vec<&str> = policies.iter().map(|link| link.name.as_str()).collect();
    names.join(",")
}

fn print(format: &Format, role: Json, out: &Out) -> Result<()> {
    if !format.print(&role, out)? {
        let role: AclRole = answer::of(role)?;
        out.line(&shown(&role));
    }
    Ok(())
}

fn shown(role: &AclRole) -> String {
    pairs(&[
        ("ID", role.id.clone()),
        ("Name", role.name.clone()),
        ("Description", role.description.clone()),
        ("Policies", names(&role.policies)),
        ("Create Index", role.create_index.to_string()),
        ("Modify Index", role.modify_index.to_string()),
    ])
}

async fn all(args: ListArgs, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let requested: (&str, Query<'_>) = ("/v1/acl/roles", &[]);
    let failed = "Error listing ACL roles";
    let all = args.format.ask(&client, requested, failed, out).await?;
    let Some(all): Option<Vec<AclRoleListStub>> = all else {
        return Ok(());
    };
    let mut table = ColumnTable::new(["ID", "Name", "Description", "Policies"]);
    for role in all {
        let policies = names(&role.policies);
        table.row([role.id, role.name, role.description, policies]);
    }
    out.line(&match table.is_empty() {
        true => "No ACL roles found".to_owned(),
        false => table.to_string(),
    });
    Ok(())
}

async fn update(args: UpdateArgs, out: &Out) -> Result<()> {
    args.format.check()?;
    let client = args.conn.client()?;
    let path = format!("/v1/acl/role/{}", encode(&args.id));
    let has_change = args.name.is_some() || args.description.is_some() || !args.policies.is_empty();
    if !has_change {
        bail!("Please provide at least one flag to update the ACL role");
    }
    let mut role = match args.no_merge {
        true => Raw::from_iter([("ID".to_owned(), args.id.into())]),
        false => merge::current(&client, &path, "Error reading ACL role").await?,
    };
    if args.no_merge && (args.name.is_none() || args.policies.is_empty()) {
        bail!("ACL role name and at least one policy must be given with -no-merge");
    }
    let mut policies = match role.remove("Policies") {
        Some(Json::Array(policies)) => policies,
        _ => Vec::new(),
    };
    for name in args.policies {
        let is_named = |link: &Json| {
            let link = answer::of_ref::<AclRolePolicyLink>(link);
            link.is_ok_and(|link| link.name == name)
        };
        if !policies.iter().any(is_named) {
            policies.push(json!({ "Name": name }));
        }
    }
    let given = [
        ("Name", args.name.map(Json::from)),
        ("Description", args.description.map(Json::from)),
        ("Policies", Some(Json::Array(policies))),
    ];
    merge::set(&mut role, given);
    let done = client.put(&path, &[], &role).await;
    let done = done.map_err(|err| err.context("Error updating ACL role"))?;
    print(&args.format, done, out)
}
