//! Whose business a request is that one agent answers: this one's, or another's.

use drover_projections::tables::nodes;

use super::list::storage;
use super::state::Api;
use crate::error::Refusal;
use crate::table_reads::glance;

/// What answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// This agent.
    Here,
    /// The client with this id.
    Node(String),
    /// The server with this id or name.
    Server(String),
}

/// What answers a request that names a node, a server or neither, which is this agent.
///
/// # Errors
/// 400 for both; 404 for a node that is not known.
pub(super) fn target(api: &Api, node: &str, server: &str) -> Result<Target, Refusal> {
    match (node, server) {
        ("", "") => Ok(Target::Here),
        ("", server) if is_this_server(api, server) => Ok(Target::Here),
        ("", server) => Ok(Target::Server(server.to_owned())),
        (node, "") => {
            let own = api.server.client();
            if own.is_some_and(|client| client.node_id() == node) {
                return Ok(Target::Here);
            }
            let view = api.projections.view();
            match glance(|| nodes::get(&view, node)).map_err(storage)? {
                Some(_) => Ok(Target::Node(node.to_owned())),
                None => Err(Refusal::not_found(format!("Unknown node {node:?}"))),
            }
        }
        _ => Err(Refusal::bad_request(
            "Cannot target node and server simultaneously",
        )),
    }
}

fn is_this_server(api: &Api, wanted: &str) -> bool {
    let me = &api.server.me;
    let leader = || api.server.leader_address();
    wanted == me.id
        || wanted == me.name
        || (wanted == "leader" && leader().as_deref() == Some(&me.rpc_addr))
}
