//! Which agents are looked at.

use super::super::client::Client;
use super::super::query::find;
use super::Args;
use crate::http::answers::NodeListStub;
use crate::server::member_shapes::ServerMembersResponse;
use anyhow::Result;
use drover_events::model::status as words;

/// An agent: where its files go, and how requests to another agent name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    /// `server` or `client`.
    pub(super) role: &'static str,
    /// Its name or id.
    pub(super) name: String,
}

impl Agent {
    /// The parameter that names it.
    pub(super) fn parameter(&self) -> (&'static str, &str) {
        let key = match self.role {
            "server" => "server_id",
            _ => "node_id",
        };
        (key, &self.name)
    }

    /// Where its files go.
    pub(super) fn folder(&self) -> String {
        // A name is a path nowhere.
        let name = self.name.replace(['/', '\\'], "_");
        format!("{}/{}", self.role, name.trim_start_matches('.'))
    }
}

/// All of them, and those that were requested and are left out.
#[derive(Debug, Default)]
pub(super) struct Agents {
    pub(super) all: Vec<Agent>,
    /// Which agent, and why.
    pub(super) left_out: Vec<(String, String)>,
}

impl Agents {
    /// Finds those that were requested.
    pub(super) async fn find(client: &Client, args: &Args) -> Result<Self> {
        let mut found = Self::default();
        found.find_servers(client, &args.server_id).await?;
        found.find_clients(client, args).await?;
        Ok(found)
    }

    fn named(&self, role: &str) -> Vec<String> {
        let of_role = self.all.iter().filter(|agent| agent.role == role);
        of_role.map(|agent| agent.name.clone()).collect()
    }

    /// Names of the servers.
    pub(super) fn servers(&self) -> Vec<String> {
        self.named("server")
    }

    /// Ids of the clients.
    pub(super) fn clients(&self) -> Vec<String> {
        self.named("client")
    }

    async fn find_servers(&mut self, client: &Client, wanted: &[String]) -> Result<()> {
        let server = |name: &str| Agent {
            role: "server",
            name: name.to_owned(),
        };
        match wanted {
            [one] if one == "none" => {}
            [one] if one == "all" => {
                let found = client.fetch("/v1/agent/members", &[]).await;
                let found: ServerMembersResponse =
                    found.map_err(|err| err.context("Error querying servers"))?;
                let members = found.members.iter();
                self.all.extend(members.map(|member| server(&member.name)));
            }
            names => self.all.extend(names.iter().map(|name| server(name))),
        }
        Ok(())
    }

    async fn find_clients(&mut self, client: &Client, args: &Args) -> Result<()> {
        let failed = "Error querying clients";
        let nodes: Vec<NodeListStub> = match args.node_id.as_slice() {
            [one] if one == "none" => return Ok(()),
            [one] if one == "all" => {
                let nodes = client.fetch("/v1/nodes", &[]).await;
                nodes.map_err(|err| err.context(failed))?
            }
            ids => {
                let mut nodes = Vec::new();
                for id in ids {
                    nodes.push(find(client, id).await?);
                }
                nodes
            }
        };
        for node in nodes {
            let NodeListStub {
                id,
                status,
                node_class,
                ..
            } = node;
            let clients = self.all.iter().filter(|agent| agent.role == "client");
            let full = args.max_nodes > 0 && clients.count() >= args.max_nodes;
            let why = match full {
                _ if !args.node_class.is_empty() && node_class != args.node_class => continue,
                _ if status != words::node::READY => format!("it is {status}"),
                true => format!("-max-nodes is {}", args.max_nodes),
                false => {
                    self.all.push(Agent {
                        role: "client",
                        name: id,
                    });
                    continue;
                }
            };
            self.left_out.push((format!("client/{id}"), why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_but_into_its_folder() {
        let folder = |name: &str| {
            let agent = Agent {
                role: "server",
                name: name.to_owned(),
            };
            agent.folder()
        };
        assert_eq!(folder("a.global"), "server/a.global");
        assert_eq!(folder("../../etc"), "server/_.._etc");
        assert_eq!(folder("a/b"), "server/a_b");
    }
}
