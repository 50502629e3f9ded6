//! Roles.

use drover_events::model::{AclRole, AclRoleListStub};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::query::acl::{role_by_name, shown_role};
use drover_projections::tables::acl_roles::AclRoles;
use drover_projections::watch::Interest;
use smallvec::SmallVec;

use super::{enabled, held_roles};
use crate::commands::acl::{DeleteAclRoles, UpsertAclRoles};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{Write, demand};
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::http::rows;
use crate::http::sight::Rows;
use crate::table_reads::glance;

fn stub(role: AclRole) -> AclRoleListStub {
    AclRoleListStub {
        id: role.id,
        name: role.name,
        description: role.description,
        policies: role.policies,
        create_index: role.create_index,
        modify_index: role.modify_index,
    }
}

/// `GET /v1/acl/roles`: all, or those that the caller holds.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    let rows: Rows<'_, AclRole> = if read.identity.is_management() {
        rows::ids::<AclRoles>(&read.view, read.options)?.seen_by(|acl, _| acl.is_management())
    } else {
        let mut ids: Vec<String> = held_roles(read)?.into_iter().collect();
        if read.options.reverse() {
            ids.reverse();
        }
        let prefix = read.options.prefix();
        let ids = ids.into_iter().filter(move |id| id.starts_with(prefix));
        Box::new(ids.filter_map(|id| read.view.get::<AclRoles>(id.as_str()).transpose()))
    };
    let rows = rows.map(|row| Ok(stub(shown_role(read.view.unfiltered(), &row?)?)));
    let token = |row: &AclRoleListStub| PageToken::Id(row.id.clone());
    let answer = list::render(read.options, TokenKind::Id, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<AclRoles>()))
}

/// The row of the role in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let id = request.segment(3)?;
    Ok([Interest::row::<AclRoles>(id.as_str())]
        .into_iter()
        .collect())
}

/// Whether the caller holds the role in the path.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let id = read.request.segment(3)?;
    demand(held_roles(read)?.contains(&id))
}

/// Whether the caller holds the role whose name is in the path.
pub(in crate::http) fn name_readable(read: &Read<'_>) -> Result<(), Refusal> {
    let role = named(read)?;
    let held = held_roles(read)?;
    demand(role.is_some_and(|role| held.contains(&role.id)))
}

fn named(read: &Read<'_>) -> Result<Option<AclRole>, Refusal> {
    let name = read.request.segment(4)?;
    let role = role_by_name(read.view.unfiltered(), &name).map_err(storage)?;
    Ok(role.map(|role| AclRole::clone(&role)))
}

/// `GET /v1/acl/role/:id`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    let id = read.request.segment(3)?;
    let role = read.view.get::<AclRoles>(id.as_str());
    answer(read, role.map_err(storage)?)
}

/// `GET /v1/acl/role/name/:name`.
pub(in crate::http) fn get_by_name(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    answer(read, named(read)?)
}

fn answer(read: &Read<'_>, role: Option<AclRole>) -> Result<Answer, Refusal> {
    let role = role.ok_or_else(|| Refusal::not_found("ACL role not found"))?;
    let role = shown_role(read.view.unfiltered(), &role).map_err(storage)?;
    Ok(Answer::json(&role)?.at(role.modify_index))
}

/// `PUT /v1/acl/role` and `PUT /v1/acl/role/:id`.
pub(in crate::http) async fn upsert(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let role: AclRole = write.json().await?;
    let id = write.request.segment(3)?;
    if !id.is_empty() && id != role.id {
        return Err(Refusal::bad_request(
            "ACL role ID does not match request path",
        ));
    }
    let name = role.name.clone();
    let command = UpsertAclRoles {
        roles: vec![role],
        allow_missing_policies: false,
    };
    let done = write.submit(command).await?;
    let view = write.api.projections.view();
    let role = glance(|| match role_by_name(&view, &name)? {
        Some(role) => shown_role(&view, &role).map(Some),
        None => Ok(None),
    });
    // A caller that took the name away since, or the role, wins.
    let role = role.map_err(storage)?;
    let role = role.ok_or_else(|| Refusal::not_found("ACL role not found"))?;
    Ok(Answer::json(&role)?.written(done.index))
}

/// `DELETE /v1/acl/role/:id`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let ids = vec![write.request.segment(3)?];
    let done = write.submit(DeleteAclRoles { ids }).await?;
    Ok(Answer::nothing().written(done.index))
}
