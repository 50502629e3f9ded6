//! Tokens.

use drover_events::acl::SealedToken;
use drover_events::gojson::{List, Time};
use drover_events::model::status::token_type;
use drover_events::model::{AclToken, AclTokenListStub};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::query::acl::shown_token;
use drover_projections::tables::acl_tokens::{AclTokens, AclTokensByCreate, secret_hash};
use drover_projections::watch::Interest;
use drover_projections::{Prefix, Scan};
use smallvec::SmallVec;

use super::{ANONYMOUS, Fresh, enabled, shown};
use crate::commands::acl::{CreateAclToken, DeleteAclTokens, UpdateAclToken};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{Write, demand};
use crate::http::list::{self, storage};
use crate::http::new_id;
use crate::http::query::ReadOptions;
use crate::http::request::Request;
use crate::http::rows;
use crate::http::sight::Rows;
use crate::table_reads::glance;

fn stub(token: AclToken) -> AclTokenListStub {
    AclTokenListStub {
        accessor_id: token.accessor_id,
        name: token.name,
        r#type: token.r#type,
        policies: token.policies,
        roles: token.roles,
        global: token.global,
        create_time: Time(token.create_time.0),
        expiration_time: token.expiration_time.map(|time| Time(time.0)),
        create_index: token.create_index,
        modify_index: token.modify_index,
    }
}

/// `GET /v1/acl/tokens`: by creation, or those whose accessor begins with the prefix. Filters see
/// what is listed, which is no secret.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    let options = read.options;
    let (kind, rows): (_, Rows<'_, SealedToken>) = match options.prefix() {
        "" => {
            let rows = read.view.rows_by::<AclTokensByCreate>(scan(options));
            (TokenKind::IndexId, rows.of_route())
        }
        _ => (
            TokenKind::Id,
            rows::ids::<AclTokens>(&read.view, options)?.of_route(),
        ),
    };
    let global = read.request.query.text("global") == "true";
    let rows = rows.filter_map(|row| match row {
        Ok(row) if global && !row.token.global => None,
        Ok(row) => Some(shown_token(read.view.unfiltered(), &row.token).map(stub)),
        Err(error) => Some(Err(error)),
    });
    let token = |row: &AclTokenListStub| match kind {
        TokenKind::IndexId => PageToken::IndexId(row.create_index, row.accessor_id.clone()),
        _ => PageToken::Id(row.accessor_id.clone()),
    };
    let answer = list::render(options, kind, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<AclTokens>()))
}

/// All tokens by their creation, from the page's start on.
fn scan(options: &ReadOptions) -> Scan {
    let scan = match PageToken::parse(TokenKind::IndexId, options.next_token()) {
        Ok(PageToken::IndexId(index, id)) => {
            let place = Prefix::new().u64(index).id(&id);
            Scan::all().from(place.as_bytes())
        }
        _ => Scan::all(),
    };
    match options.reverse() {
        true => scan.reverse(),
        false => scan,
    }
}

/// The row of the token in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let accessor = request.segment(3)?;
    Ok([Interest::row::<AclTokens>(accessor.as_str())]
        .into_iter()
        .collect())
}

/// Whether the token in the path is the caller's own.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let accessor = read.request.segment(3)?;
    let own = read.identity.token.as_deref();
    demand(own.is_some_and(|own| own.accessor_id == accessor))
}

fn answer(read: &Read<'_>, accessor: &str) -> Result<Answer, Refusal> {
    let found = read.view.get::<AclTokens>(accessor).map_err(storage)?;
    let sealed = found.ok_or_else(|| Refusal::not_found("ACL token not found"))?;
    let token = shown(read.view.unfiltered(), &read.api.keyring, &sealed).map_err(storage)?;
    Ok(Answer::json(&token)?.at(token.modify_index))
}

/// `GET /v1/acl/token/:accessor`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    answer(read, &read.request.segment(3)?)
}

/// `GET /v1/acl/token/self`: the token in use; for a caller that gives none, the anonymous one.
pub(in crate::http) fn own(read: &Read<'_>) -> Result<Answer, Refusal> {
    enabled(read.api)?;
    match read.identity.token.as_deref() {
        Some(token) => answer(read, &token.accessor_id),
        // A workload has none.
        None if read.identity.claim.is_some() => Err(Refusal::permission_denied()),
        None => Ok(Answer::json(&anonymous())?.at(read.view.table_index::<AclTokens>())),
    }
}

fn anonymous() -> AclToken {
    AclToken {
        accessor_id: ANONYMOUS.to_owned(),
        name: "Anonymous Token".to_owned(),
        r#type: token_type::CLIENT.to_owned(),
        policies: List::from(vec![ANONYMOUS.to_owned()]),
        ..AclToken::default()
    }
}

/// `PUT /v1/acl/token` and `PUT /v1/acl/token/:accessor`: one with an accessor is changed.
pub(in crate::http) async fn upsert(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let token: AclToken = write.json().await?;
    let accessor = write.request.segment(3)?;
    if !accessor.is_empty() && accessor != token.accessor_id {
        return Err(Refusal::bad_request(
            "ACL token accessor does not match request path",
        ));
    }
    if token.accessor_id.is_empty() {
        return create(write, token, (new_id(), new_id())).await;
    }
    let view = write.api.projections.view();
    let known = glance(|| view.modify_index::<AclTokens>(token.accessor_id.as_str()));
    drop(view);
    match known.map_err(storage)? {
        None if !token.secret_id.is_empty() => upload(write, token).await,
        _ => update(write, token).await,
    }
}

/// A token whose accessor and secret the caller chose.
async fn upload(write: Write, token: AclToken) -> Result<Answer, Refusal> {
    let ids = (token.accessor_id.clone(), token.secret_id.clone());
    if !rows::is_uuid(&ids.0) || !rows::is_uuid(&ids.1) {
        return Err(Refusal::bad_request("invalid acl token"));
    }
    if token.r#type == token_type::MANAGEMENT {
        return Err(Refusal::bad_request("cannot upload management tokens"));
    }
    create(write, token, ids).await
}

async fn create(
    write: Write,
    token: AclToken,
    (accessor, secret): (String, String),
) -> Result<Answer, Refusal> {
    let fresh = Fresh::with(&write.api, accessor, secret).await?;
    let command = CreateAclToken {
        token: AclToken {
            accessor_id: fresh.accessor.clone(),
            secret_id: String::new(),
            ..token
        },
        secret: fresh.sealed,
        ttl: write.api.settings.now().token_ttl,
    };
    let done = write.submit(command).await?;
    let mut token = stored(&write, &fresh.accessor)?;
    token.secret_id = fresh.secret;
    Ok(Answer::json(&token)?.written(done.index))
}

async fn update(write: Write, mut token: AclToken) -> Result<Answer, Refusal> {
    let accessor = token.accessor_id.clone();
    let secret_hash = match token.secret_id.as_str() {
        "" => String::new(),
        given => secret_hash(given),
    };
    token.secret_id.clear();
    let command = UpdateAclToken { token, secret_hash };
    let done = write.submit(command).await?;
    Ok(Answer::json(&stored(&write, &accessor)?)?.written(done.index))
}

/// A token as it is after a write, its secret with it. A caller that deleted it since wins.
pub(super) fn stored(write: &Write, accessor: &str) -> Result<AclToken, Refusal> {
    let view = write.api.projections.view();
    let token = glance(|| {
        let found = view.get::<AclTokens>(accessor)?;
        let shown = |sealed: &SealedToken| shown(&view, &write.api.keyring, sealed);
        found.as_ref().map(shown).transpose()
    });
    let token = token.map_err(storage)?;
    token.ok_or_else(|| Refusal::not_found("ACL token not found"))
}

/// `DELETE /v1/acl/token/:accessor`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let command = DeleteAclTokens {
        accessor_ids: vec![write.request.segment(3)?],
        expired_by: 0,
    };
    let done = write.submit(command).await?;
    Ok(Answer::nothing().written(done.index))
}
