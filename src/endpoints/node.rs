//! Nodes: registration, heartbeats, what they report.

use std::sync::Arc;

use drover_events::model::status::node as status;
use drover_projections::tables::nodes;

use super::{ClientEndpoints, auth, secret_hash};
use crate::commands::node::{AddNodeEvents, RegisterNode, UpdateNodeDrain, UpdateNodeStatus};
use crate::error::Refusal;
use crate::rpc::methods::{
    AllocUpdateRequest, EmitNodeEventsRequest, NodeRegisterRequest, NodeServerInfo,
    NodeSpecificRequest, NodeUpdateDrainRequest, NodeUpdateResponse, NodeUpdateStatusRequest,
    SingleNodeResponse, WriteResponse,
};
use crate::rpc::service::Call;
use crate::scheduler::feasible::computed_class;
use crate::table_reads::read_apart_from_api;

/// `Node.Register`.
pub(super) async fn register(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: NodeRegisterRequest,
) -> Result<NodeUpdateResponse, Refusal> {
    let mut node = request.node;
    if node.secret_id.is_empty() {
        return Err(Refusal::by_rule(
            "missing node secret ID for client registration",
        ));
    }
    if node.attributes.is_empty() {
        return Err(Refusal::by_rule(
            "missing attributes for client registration",
        ));
    }
    if node.node_pool == drover_events::model::status::ALL_NODE_POOL {
        let text = "node is not allowed to register in node pool \"all\"";
        return Err(Refusal::by_rule(text));
    }
    node.secret_id = secret_hash(&node.secret_id);
    // A node says what it is, not how it is: that follows from its heartbeats.
    node.status = status::INIT.to_owned();
    node.computed_class = computed_class(&node);
    let id = node.id.clone();
    let allowed = auth::newcomer(&call, &id);
    let command = RegisterNode {
        node,
        create_node_pool: true,
    };
    let index = endpoints.server.submit(&allowed, command).await?;
    endpoints.answer(&id, index).await
}

/// `Node.UpdateStatus`.
pub(super) async fn update_status(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: NodeUpdateStatusRequest,
) -> Result<NodeUpdateResponse, Refusal> {
    let NodeUpdateStatusRequest {
        node_id,
        status,
        node_event,
    } = request;
    let allowed = endpoints.authorize_node_or_gone(&call, &node_id).await?;
    let command = UpdateNodeStatus {
        node_id: node_id.clone(),
        status,
        event: node_event,
    };
    let index = endpoints.server.submit(&allowed, command).await?;
    endpoints.answer(&node_id, index).await
}

/// `Node.UpdateAlloc`.
pub(super) async fn update_alloc(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: AllocUpdateRequest,
) -> Result<WriteResponse, Refusal> {
    if !request.evals.is_empty() {
        return Err(Refusal::by_rule("evals field must not be set"));
    }
    let Some(first) = request.alloc.first() else {
        return Err(Refusal::by_rule("must update at least one allocation"));
    };
    let node = first.node_id.clone();
    let allowed = endpoints.authorize_node(&call, &node).await?;
    let index = endpoints.batch.submit(node, request.alloc, allowed).await?;
    Ok(WriteResponse { index })
}

/// `Node.EmitEvents`.
pub(super) async fn emit_events(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: EmitNodeEventsRequest,
) -> Result<WriteResponse, Refusal> {
    let nodes: Vec<String> = request.node_events.keys().cloned().collect();
    let Some((node, others)) = nodes.split_first() else {
        return Err(Refusal::by_rule("no node events given"));
    };
    for id in others {
        endpoints.authorize_node(&call, id).await?;
    }
    let command = AddNodeEvents {
        events: request.node_events,
    };
    let allowed = endpoints.authorize_node(&call, node).await?;
    let index = endpoints.server.submit(&allowed, command).await?;
    Ok(WriteResponse { index })
}

/// `Node.UpdateDrain`.
pub(super) async fn update_drain(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: NodeUpdateDrainRequest,
) -> Result<WriteResponse, Refusal> {
    let NodeUpdateDrainRequest {
        node_id,
        drain_spec,
        meta,
    } = request;
    if drain_spec.is_none() {
        return Err(Refusal::by_rule("a node may begin a drain, not end it"));
    }
    let command = UpdateNodeDrain {
        node_id: node_id.clone(),
        spec: drain_spec,
        meta,
        ..UpdateNodeDrain::default()
    };
    let allowed = endpoints.authorize_node(&call, &node_id).await?;
    let index = endpoints.server.submit(&allowed, command).await?;
    Ok(WriteResponse { index })
}

/// `Node.GetNode`.
pub(super) async fn get(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: NodeSpecificRequest,
) -> Result<SingleNodeResponse, Refusal> {
    let id = request.node_id;
    endpoints.authorize_node(&call, &id).await?;
    let view = endpoints.server.projections.view();
    read_apart_from_api(move || {
        let node = nodes::get(&view, &id)?.map(|mut node| {
            node.secret_id.clear();
            node
        });
        let index = node.as_ref().map_or(0, |node| node.modify_index);
        Ok(SingleNodeResponse { node, index })
    })
    .await?
}

impl ClientEndpoints {
    async fn answer(&self, id: &str, index: u64) -> Result<NodeUpdateResponse, Refusal> {
        let (view, name) = (self.server.projections.view(), id.to_owned());
        let node = read_apart_from_api(move || nodes::get(&view, &name)).await??;
        let node = node.unwrap_or_default();
        let ttl = (self.beat)(id);
        Ok(NodeUpdateResponse {
            heartbeat_ttl: i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX),
            node_modify_index: node.modify_index,
            leader_rpc_addr: self.server.leader().map(|m| m.rpc_addr).unwrap_or_default(),
            servers: self.servers(),
            scheduling_eligibility: node.scheduling_eligibility,
            index,
            epoch: self.epoch(),
            ..NodeUpdateResponse::default()
        })
    }

    fn servers(&self) -> Vec<NodeServerInfo> {
        let member = |(_, member, _): (u64, crate::raft::Member, bool)| NodeServerInfo {
            rpc_advertise_addr: member.rpc_addr,
            datacenter: self.server.config.datacenter.clone(),
        };
        self.server.raft.members().into_iter().map(member).collect()
    }
}
