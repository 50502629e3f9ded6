//! CSI plugins: global, and what of their allocations the caller may see (CSI-18).

use std::collections::BTreeSet;

use drover_events::gojson::List;
use drover_events::model::CsiPluginListStub;
use drover_events::model::status::volume_type;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::query::csi as stored;
use drover_projections::tables::csi_plugins::{CsiPluginRow, CsiPlugins};

use crate::error::Refusal;
use crate::http::answer::{Answer, JSON};
use crate::http::front::Read;
use crate::http::gate::{READ_JOB, demand};
use crate::http::list::{self, storage};
use crate::http::rows;

/// Whether plugins may be seen in lists.
pub(in crate::http) fn listable(read: &Read<'_>) -> Result<(), Refusal> {
    demand(read.identity.acl.plugin_list())
}

/// `GET /v1/plugins`: of one type; without one there is nothing to show.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let index = read.view.table_index::<CsiPlugins>();
    match read.request.query.text("type") {
        volume_type::CSI => {}
        "" => {
            list::filter(read.options)?;
            return Ok(Answer::of(JSON, "[]".to_owned()).at(index));
        }
        _ => return Ok(Answer::nothing()),
    }
    let rows = read.view.rows::<CsiPlugins>(rows::named(read.options));
    let rows = rows.seen_by(|acl, _| acl.plugin_list());
    let stubs = rows.map(|row| row.map(|row| stub(&row)));
    let token = |row: &CsiPluginListStub| PageToken::Id(row.id.clone());
    let answer = list::render(read.options, TokenKind::Id, stubs, token, Ok)?;
    Ok(answer.at(index))
}

fn stub(row: &CsiPluginRow) -> CsiPluginListStub {
    let plugin = &row.plugin;
    CsiPluginListStub {
        id: plugin.id.clone(),
        provider: plugin.provider.clone(),
        version: plugin.version.clone(),
        controller_required: plugin.controller_required,
        controllers_healthy: plugin.controllers_healthy,
        controllers_expected: plugin.controllers_expected,
        nodes_healthy: plugin.nodes_healthy,
        nodes_expected: plugin.nodes_expected,
        create_index: plugin.create_index,
        modify_index: plugin.modify_index,
    }
}

/// `GET /v1/plugin/csi/:id`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = read.request.segment(3)?;
    let plugin = stored::plugin(read.view.unfiltered(), &id).map_err(storage)?;
    let plugin = plugin.ok_or_else(|| Refusal::not_found("plugin not found"))?;
    let parts = plugin.controllers.values().chain(plugin.nodes.values());
    let allocs: BTreeSet<&String> = parts.map(|info| &info.alloc_id).collect();
    let mut stubs = List::empty();
    for alloc in allocs {
        let stub = super::stub_of(read, alloc).map_err(storage)?;
        let seen = stub.filter(|stub| read.sees(&stub.namespace, READ_JOB));
        stubs.to_mut().extend(seen);
    }
    let mut shown = plugin.shown();
    shown.allocations = stubs;
    Ok(Answer::json(&shown)?.at(shown.modify_index))
}
