//! `acl token create` and `acl token update`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::merge;
use super::super::out::Out;
use super::super::show::Format;
use super::super::spec::source;
use super::token::print;
use anyhow::{Result, bail};
use drover_events::model::AclTokenRoleLink;
use drover_events::model::status::token_type;
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
    fn roles(&self) -> Vec<AclTokenRoleLink> {
        let ids = self.role_ids.iter().map(|id| AclTokenRoleLink {
            id: id.clone(),
            ..AclTokenRoleLink::default()
        });
        let names = self.role_names.iter().map(|name| AclTokenRoleLink {
            name: name.clone(),
            ..AclTokenRoleLink::default()
        });
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
    /// client, which may do what its policies allow, or management, which may do everything
    #[arg(long = "type", default_value = token_type::CLIENT)]
    kind: String,
    /// Valid in every region
    #[arg(long)]
    global: bool,
    /// How long it is valid, for example 8h; without it, for ever
    #[arg(long, value_name = "DURATION")]
    ttl: Option<String>,
    #[command(flatten)]
    links: Links,
    /// The accessor it is to have, a UUID; its secret is in the file
    #[arg(long, value_name = "ID", requires = "secret")]
    accessor: Option<String>,
    /// A file with the secret of the token with -accessor, a UUID; - reads standard input
    #[arg(value_name = "PATH", requires = "accessor")]
    secret: Option<String>,
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
    args.format.check()?;
    let (mut path, mut secret) = ("/v1/acl/token".to_owned(), None);
    if let (Some(accessor), Some(file)) = (&args.accessor, &args.secret) {
        secret = Some(source(file)?.trim().to_owned());
        path = format!("{path}/{}", encode(accessor));
    }
    let token = json!({
        "AccessorID": args.accessor,
        "SecretID": secret,
        "Name": args.name,
        "Type": args.kind,
        "Global": args.global,
        "Policies": args.links.policies,
        "Roles": args.links.roles(),
        "ExpirationTTL": args.ttl,
    });
    let made = args.conn.client()?.put(&path, &[], &token).await;
    let made = made.map_err(|err| err.context("Error creating token"))?;
    print(&args.format, made, out)
}

/// Changes a token: what is not given stays.
pub(super) async fn update(args: UpdateArgs, out: &Out) -> Result<()> {
    args.format.check()?;
    let client = args.conn.client()?;
    let path = format!("/v1/acl/token/{}", encode(&args.accessor));
    let mut token = merge::current(&client, &path, "Error fetching token").await?;
    let roles = args.links.roles();
    let policies = args.links.policies;
    if args.name.is_none() && args.kind.is_none() && roles.is_empty() && policies.is_empty() {
        bail!("Please provide at least one flag to update the ACL token");
    }
    let given = [
        ("Name", args.name.map(Json::from)),
        ("Type", args.kind.map(Json::from)),
        ("Policies", (!policies.is_empty()).then(|| json!(policies))),
        ("Roles", (!roles.is_empty()).then(|| json!(roles))),
    ];
    merge::set(&mut token, given);
    let done = client.put(&path, &[], &token).await;
    let done = done.map_err(|err| err.context("Error updating token"))?;
    print(&args.format, done, out)
}
