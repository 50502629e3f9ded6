//! `acl token create` and `acl token update`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::Format;
use super::token::print;
use anyhow::{Result, bail};
use serde_json::{Value as Json, json};

/// The policies and roles of a token.
#[derive(Debug, clap::Args)]
struct Links {
    /// A policy it holds; may be given several times
    #[arg(long = "policy", value_name = "NAME")]
    policies: Vec<String>,
    /// A role it holds, by id; may be given several times
    #[arg(long = "role-id", value_name = "ID")]
    role_ids: Vec<String>,
    /// A role it holds, by name; may be given several times
    #[arg(long = "role-name", value_name = "NAME")]
    role_names: Vec<String>,
}

impl Links {
    fn roles(&self) -> Vec<Json> {
        let ids = self.role_ids.iter().map(|id| json!({ "ID": id }));
        let names = self.role_names.iter().map(|name| json!({ "Name": name }));
        ids.chain(names).collect()
    }
}

/// Flags of `acl token create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover acl token create -name ci -policy deploy -ttl 8h
  drover acl token create -name root -type management")]
pub(in crate::cli) struct CreateArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// A name for people
    #[arg(long, default_value = "")]
    name: String,
    /// client, which may what its policies allow, or management, which may everything
    #[arg(long = "type", default_value = "client")]
    kind: String,
    /// Good in every region
    #[arg(long)]
    global: bool,
    /// How long it is good, for example 8h; for ever unless said
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    #[command(flatten)]
    links: Links,
}

/// Flags of `acl token update`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct UpdateArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// Its new name
    #[arg(long)]
    name: Option<String>,
    /// client or management
    #[arg(long = "type")]
    kind: Option<String>,
    #[command(flatten)]
    links: Links,
    /// Its accessor
    accessor: String,
}

/// Creates a token.
pub(super) async fn create(args: CreateArgs, out: &Out) -> Result<()> {
    let mut token = json!({
        "Name": args.name,
        "Type": args.kind,
        "Global": args.global,
        "Policies": args.links.policies,
        "Roles": args.links.roles(),
    });
    if let Some(ttl) = &args.ttl {
        token["ExpirationTTL"] = ttl.as_str().into();
    }
    let made = args.conn.client()?.put("/v1/acl/token", &[], &token).await;
    let made = made.map_err(|err| err.context("Error creating token"))?;
    print(&args.format, &made, out)
}

/// Changes a token: what is not given stays.
pub(super) async fn update(args: UpdateArgs, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let path = format!("/v1/acl/token/{}", encode(&args.accessor));
    let found = client.get_json(&path, &[]).await;
    let mut token = found.map_err(|err| err.context("Error fetching token"))?;
    let roles = args.links.roles();
    let given = args.name.is_some() || args.kind.is_some();
    if !given && roles.is_empty() && args.links.policies.is_empty() {
        bail!("Please provide at least one flag to update the ACL token");
    }
    if let Some(name) = &args.name {
        token["Name"] = name.as_str().into();
    }
    if let Some(kind) = &args.kind {
        token["Type"] = kind.as_str().into();
    }
    if !args.links.policies.is_empty() {
        token["Policies"] = json!(args.links.policies);
    }
    if !roles.is_empty() {
        token["Roles"] = roles.into();
    }
    let done = client.put(&path, &[], &token).await;
    let done = done.map_err(|err| err.context("Error updating token"))?;
    print(&args.format, &done, out)
}
