//! Nodes and node pools.

#[cfg(test)]
mod list_test;
mod ready_list;
pub(in crate::http) mod shapes;
pub(in crate::http) mod write;

use drover_events::gojson::Map;
use drover_events::model::Node;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::allocs::{Allocs, AllocsByNode};
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::watch::Interest;
use drover_projections::{Id, Prefix, Scan, Table};
use smallvec::SmallVec;

use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::{Read, table_index};
use crate::http::gate::READ_JOB;
use crate::http::list::{self, storage};
use crate::http::nodes::shapes::NodeListStub;
use crate::http::ready;
use crate::http::request::Request;
use crate::http::rows;
use crate::http::sight::Unchecked;
use ready_list::NodeList;

/// The tables a list of nodes is made of.
pub(in crate::http) const TABLES: &[u16] = &[Nodes::ID, NodeStates::ID];

/// Which of a node's larger parts a list shows.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::http) struct NodeFields {
    resources: bool,
    os: bool,
}

impl NodeFields {
    fn read(request: &Request) -> Result<Self, Refusal> {
        let flag = |name| {
            request.query.flag(name).map_err(|e| {
                Refusal::bad_request(format!("Failed to parse node list fields: {}", e.message))
            })
        };
        Ok(Self {
            resources: flag("resources")?,
            os: flag("os")?,
        })
    }
}

/// `GET /v1/nodes`.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    if NodeFields::read(read.request)? == NodeFields::default()
        && let Some(proof) = read.view.all_of_route()
        && let Some(answer) = ready::answer::<NodeList>(read, proof)?
    {
        return Ok(answer);
    }
    list_of(read, |_| true)
}

/// The list from the rendered one alone, if that is ready; none where tables have to be read.
pub(in crate::http) fn near_list(read: &Read<'_>) -> Option<Answer> {
    let plain = NodeFields::read(read.request).is_ok_and(|fields| fields == NodeFields::default());
    let proof = read.view.all_of_route().filter(|_| plain)?;
    ready::near::<NodeList>(read, proof)
}

/// A page of the nodes that a condition leaves.
pub(in crate::http) fn list_of(
    read: &Read<'_>,
    keep: impl Fn(&Node) -> bool,
) -> Result<Answer, Refusal> {
    let fields = NodeFields::read(read.request)?;
    let options = read.options;
    let rows: Unchecked<'_, Node> = if options.prefix().is_empty() {
        let scan = match options.next_token() {
            "" => Scan::all(),
            token if !rows::is_uuid(token) => Scan::all(),
            token => Scan::all().from(Prefix::new().id(token).as_bytes()),
        };
        let scan = if options.reverse() {
            scan.reverse()
        } else {
            scan
        };
        read.view.rows::<Nodes>(scan)
    } else {
        rows::ids::<Nodes>(&read.view, options)?
    };
    let rows = rows
        .of_route()
        .filter(|row| row.as_ref().map_or(true, &keep))
        .map(|row| {
            let node = row?;
            let state = read
                .view
                .get::<NodeStates>(node.id.as_str())?
                .unwrap_or_default();
            let mut node = nodes::join(node, state);
            node.secret_id.clear();
            Ok(node)
        });
    let token = |node: &Node| PageToken::Id(node.id.clone());
    let answer = list::render(options, TokenKind::Id, rows, token, |n| Ok(stub(n, fields)))?;
    Ok(answer.at(table_index(read.view.unfiltered(), TABLES)))
}

/// What a list shows of a node.
fn stub(node: Node, fields: NodeFields) -> NodeListStub {
    let address = node
        .http_addr
        .rsplit_once(':')
        .map_or("", |(host, _)| host)
        .to_owned();
    NodeListStub {
        address: address.trim_matches(['[', ']']).to_owned(),
        version: node
            .attributes
            .get("nomad.version")
            .cloned()
            .unwrap_or_default(),
        drain: node.draining(),
        attributes: if fields.os {
            os_attributes(&node)
        } else {
            Map::nil()
        },
        id: node.id,
        datacenter: node.datacenter,
        name: node.name,
        node_pool: node.node_pool,
        node_class: node.node_class,
        scheduling_eligibility: node.scheduling_eligibility,
        status: node.status,
        status_description: node.status_description,
        drivers: node.drivers,
        host_volumes: node.host_volumes,
        node_resources: node.node_resources.filter(|_| fields.resources),
        reserved_resources: node.reserved_resources.filter(|_| fields.resources),
        last_drain: node.last_drain,
        create_index: node.create_index,
        modify_index: node.modify_index,
    }
}

fn os_attributes(node: &Node) -> Map<String> {
    let name = node.attributes.get("os.name").cloned().unwrap_or_default();
    [("os.name", name)].into()
}

/// The rows of the node in the path.
pub(in crate::http) fn watched_rows(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(2)?;
    let rows = [
        Interest::row::<Nodes>(id.as_str()),
        Interest::row::<NodeStates>(id.as_str()),
    ];
    Ok(rows.into_iter().collect())
}

/// `GET /v1/node/:id`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let node = nodes::get(read.view.unfiltered(), &id).map_err(storage)?;
    let mut node = node.ok_or_else(|| Refusal::not_found("node not found"))?;
    node.secret_id.clear();
    Ok(Answer::json(&node)?.at(node.modify_index))
}

/// What runs on the node in the path.
pub(in crate::http) fn watched_allocs(
    request: &Request,
) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(2)?;
    let group = Interest::group::<AllocsByNode>(id.as_str());
    Ok([group].into_iter().collect())
}

/// `GET /v1/node/:id/allocations`: whole allocations, their jobs included.
pub(in crate::http) fn allocations(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(2)?;
    let filter = list::filter(read.options)?;
    let rows = list::of_index::<AllocsByNode>(read, Scan::with_key_prefix::<Id>(id.as_str()))?;
    let rows = rows.seen_by(|acl, (_, row)| acl.namespace_allows_any(&row.namespace, READ_JOB));
    let answer = list::render_whole(read.options, rows, |row| {
        let alloc = row.with_job(read.view.unfiltered()).map_err(storage)?;
        let wanted = list::matches(filter.as_ref(), &alloc)?;
        Ok(wanted.then(|| alloc.with_summed_resources()))
    })?;
    Ok(answer.at(read.view.table_index::<Allocs>()))
}
