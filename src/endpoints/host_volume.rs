//! Host volumes, and what groups hold of them, for callers with a token: the same as the routes of
//! the HTTP API, by the same functions.

use std::sync::Arc;

use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_events::model::{HostVolume, TaskGroupHostVolumeClaim};
use drover_projections::query::host_volumes;
use drover_projections::tables::host_volume_claims::{HostVolumeClaims, HostVolumeClaimsById};
use drover_projections::tables::host_volumes::HostVolumes;
use drover_projections::{Id, Interest, Prefix, Scan, Table as _, View};
use tokio::time::{Instant, timeout_at};

use super::ClientEndpoints;
use super::auth::Allowed;
use super::blocking::wait_time;
use crate::acl::NamespaceCapability as Ns;
use crate::commands::host_volume::ReleaseHostVolumeClaim;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::rpc::host_volume::*;
use crate::rpc::methods::WriteResponse;
use crate::rpc::service::Call;
use crate::table_reads::{read_apart_from_api, spawn_detached};

/// How many rows one answer may hold; a caller with more selects by prefix.
const MOST: usize = 10_000;

/// A caller, and what it may do.
struct Asker(Identity);

impl Asker {
    fn may(&self, namespace: &str, one: Ns) -> bool {
        match namespace {
            "*" => self.0.acl.any_namespace_allows(one),
            name => self.0.acl.namespace_allows(name, one),
        }
    }

    /// Takes of a namespace's share, which the same requests over HTTP have: where the caller may
    /// do something, for no other caller learns of it.
    fn take(&self, endpoints: &ClientEndpoints, namespace: &str) -> Result<(), Refusal> {
        match self.0.acl.namespace_visible(namespace) {
            true => endpoints.requests.take_of_namespace(namespace),
            false => Ok(()),
        }
    }

    /// Lets the caller do this in a namespace.
    fn demand(&self, namespace: &str, one: Ns) -> Result<Allowed, Refusal> {
        Allowed::when(&self.0, self.may(namespace, one))
    }
}

async fn asker(endpoints: &Arc<ClientEndpoints>, call: &Call) -> Result<Asker, Refusal> {
    let who = endpoints.authenticate(call).await?;
    who.accepted()?;
    Ok(Asker(who))
}

fn named(namespace: String) -> String {
    match namespace.is_empty() {
        true => DEFAULT_NAMESPACE.to_owned(),
        false => namespace,
    }
}

/// The volume of a request; its namespace counts, or else the request's (NS-03).
fn requested_volume(
    endpoints: &ClientEndpoints,
    (volume, namespace): (Option<HostVolume>, String),
    asker: &Asker,
    right: Ns,
) -> Result<(HostVolume, Allowed), Refusal> {
    let namespace = match &volume {
        Some(volume) if !volume.namespace.is_empty() => volume.namespace.clone(),
        _ => named(namespace),
    };
    asker.take(endpoints, &namespace)?;
    // A caller that may not does not learn what else is wrong.
    let allowed = asker.demand(&namespace, right)?;
    let missing = || Refusal::bad_request("missing volume definition");
    let mut volume = volume.ok_or_else(missing)?;
    volume.namespace = namespace;
    Ok((volume, allowed))
}

/// `HostVolume.Create`.
pub(super) async fn create(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: HostVolumeCreateRequest,
) -> Result<HostVolumeCreateResponse, Refusal> {
    let asker = asker(&endpoints, &call).await?;
    let (right, warnings) = (Ns::HostVolumeCreate, warnings(request.policy_override));
    let of = (request.volume, request.namespace);
    let (volume, allowed) = requested_volume(&endpoints, of, &asker, right)?;
    let volumes = Arc::clone(&endpoints.server.host_volumes);
    let work = async move { volumes.create(volume, allowed.origin()).await };
    let (volume, index) = spawn_detached(work).await??;
    Ok(HostVolumeCreateResponse {
        volume: Some(volume),
        warnings,
        index,
    })
}

/// `HostVolume.Register`.
pub(super) async fn register(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: HostVolumeRegisterRequest,
) -> Result<HostVolumeRegisterResponse, Refusal> {
    let asker = asker(&endpoints, &call).await?;
    let (right, warnings) = (Ns::HostVolumeRegister, warnings(request.policy_override));
    let of = (request.volume, request.namespace);
    let (volume, allowed) = requested_volume(&endpoints, of, &asker, right)?;
    let volumes = Arc::clone(&endpoints.server.host_volumes);
    let work = async move { volumes.register(volume, allowed.origin()).await };
    let (volume, index) = spawn_detached(work).await??;
    Ok(HostVolumeRegisterResponse {
        volume: Some(volume),
        warnings,
        index,
    })
}

/// What of a request has no effect, in the words of the same request over HTTP.
fn warnings(policy_override: bool) -> String {
    match policy_override {
        true => "\"field PolicyOverride\" means nothing here and was ignored".to_owned(),
        false => String::new(),
    }
}

/// `HostVolume.Delete`.
pub(super) async fn delete(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: HostVolumeDeleteRequest,
) -> Result<WriteResponse, Refusal> {
    let asker = asker(&endpoints, &call).await?;
    let namespace = named(request.namespace);
    asker.take(&endpoints, &namespace)?;
    let allowed = asker.demand(&namespace, Ns::HostVolumeDelete)?;
    let volumes = Arc::clone(&endpoints.server.host_volumes);
    let work = async move {
        let key = (namespace.as_str(), request.volume_id.as_str());
        volumes.delete(key, request.force, allowed.origin()).await
    };
    let index = spawn_detached(work).await??;
    Ok(WriteResponse { index })
}

/// Waits until a table is above an index, as long as the call waits for it; whether it waited.
async fn above(endpoints: &ClientEndpoints, table: u16, index: u64, time: i64) -> bool {
    let projections = &endpoints.server.projections;
    if index == 0 {
        return false;
    }
    let end = Instant::now() + wait_time(time);
    let mut waited = false;
    loop {
        let waiter = projections.watch().register(&[Interest::Table(table)]);
        // What came before this look woke no waiter.
        if projections.view().last_changed_at(table) > index {
            return waited;
        }
        waited = true;
        if timeout_at(end, waiter).await.is_err() {
            return true;
        }
    }
}

/// A caller that may read host volumes of a namespace, once a table is above an index: by the
/// rights of then, for they may have gone while the call waited.
async fn reader(
    endpoints: &Arc<ClientEndpoints>,
    call: &Call,
    namespace: &str,
    (table, index, time): (u16, u64, i64),
) -> Result<Asker, Refusal> {
    let allowed = |asker: Asker| {
        asker.demand(namespace, Ns::HostVolumeRead)?;
        Ok(asker)
    };
    let now = asker(endpoints, call).await?;
    now.take(endpoints, namespace)?;
    let now = allowed(now)?;
    match above(endpoints, table, index, time).await {
        true => allowed(asker(endpoints, call).await?),
        false => Ok(now),
    }
}

/// `HostVolume.Get`.
pub(super) async fn get(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: HostVolumeGetRequest,
) -> Result<HostVolumeGetResponse, Refusal> {
    let namespace = named(request.namespace);
    let (index, time) = (request.min_query_index, request.max_query_time);
    reader(
        &endpoints,
        &call,
        &namespace,
        (HostVolumes::ID, index, time),
    )
    .await?;
    let (view, id) = (endpoints.server.projections.view(), request.id);
    let find = move || -> Result<_, Refusal> {
        let volume = view.get::<HostVolumes>((namespace.as_str(), id.as_str()))?;
        Ok(HostVolumeGetResponse {
            index: view.table_index::<HostVolumes>(),
            volume,
        })
    };
    read_apart_from_api(find).await?
}

/// `HostVolume.List`.
pub(super) async fn list(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: HostVolumeListRequest,
) -> Result<HostVolumeListResponse, Refusal> {
    let namespace = named(request.namespace.clone());
    let (index, time) = (request.min_query_index, request.max_query_time);
    let asker = reader(
        &endpoints,
        &call,
        &namespace,
        (HostVolumes::ID, index, time),
    )
    .await?;
    let view = endpoints.server.projections.view();
    let is = |requested: &str, known: &str| requested.is_empty() || requested == known;
    let find = move || -> Result<_, Refusal> {
        let mut volumes = Vec::new();
        for row in view.scan::<HostVolumes>(within(&namespace)) {
            let row = row?;
            let wanted = row.id.starts_with(&request.prefix)
                && is(&request.node_id, &row.node_id)
                && is(&request.node_pool, &row.node_pool);
            if wanted && asker.may(&row.namespace, Ns::HostVolumeRead) {
                one_more(volumes.len())?;
                volumes.push(host_volumes::stub(row));
            }
        }
        Ok(HostVolumeListResponse {
            volumes,
            index: view.table_index::<HostVolumes>(),
        })
    };
    read_apart_from_api(find).await?
}

/// Refuses a list that is longer than an answer: its end would be taken for that of the list.
fn one_more(rows: usize) -> Result<(), Refusal> {
    match rows < MOST {
        true => Ok(()),
        false => Err(Refusal::by_rule(format!(
            "there are more than {MOST} of these; select by prefix, node or job"
        ))),
    }
}

fn within(namespace: &str) -> Scan {
    match namespace {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name)),
    }
}

/// `TaskGroupHostVolumeClaim.List`.
pub(super) async fn claims(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: TaskGroupVolumeClaimListRequest,
) -> Result<TaskGroupVolumeClaimListResponse, Refusal> {
    let namespace = named(request.namespace.clone());
    let (index, time) = (request.min_query_index, request.max_query_time);
    let until = (HostVolumeClaims::ID, index, time);
    let asker = reader(&endpoints, &call, &namespace, until).await?;
    let view = endpoints.server.projections.view();
    let is = |requested: &str, known: &str| requested.is_empty() || requested == known;
    let find = move || -> Result<_, Refusal> {
        let mut claims: Vec<TaskGroupHostVolumeClaim> = Vec::new();
        for row in view.scan::<HostVolumeClaims>(within(&namespace)) {
            let row = row?;
            let wanted = row.id.starts_with(&request.prefix)
                && is(&request.job_id, &row.job_id)
                && is(&request.task_group, &row.task_group_name)
                && is(&request.volume_name, &row.volume_name);
            if wanted && asker.may(&row.namespace, Ns::HostVolumeRead) {
                one_more(claims.len())?;
                claims.push(row);
            }
        }
        Ok(TaskGroupVolumeClaimListResponse {
            claims,
            index: view.table_index::<HostVolumeClaims>(),
        })
    };
    read_apart_from_api(find).await?
}

/// `TaskGroupHostVolumeClaim.Delete`: the right is checked where the claim is.
pub(super) async fn release(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: TaskGroupVolumeClaimDeleteRequest,
) -> Result<WriteResponse, Refusal> {
    let asker = asker(&endpoints, &call).await?;
    asker.demand("*", Ns::HostVolumeDelete)?;
    let (view, id) = (endpoints.server.projections.view(), request.claim_id);
    let named = id.clone();
    let namespace = read_apart_from_api(move || namespace_of(&view, &named)).await??;
    // A claim of a namespace that the caller may not see is answered as one that is not there.
    let missing = || Refusal::by_rule("claim not found");
    let namespace = namespace.ok_or_else(missing)?;
    let allowed = asker.demand(&namespace, Ns::HostVolumeDelete);
    let allowed = allowed.map_err(|_| missing())?;
    asker.take(&endpoints, &namespace)?;
    let command = ReleaseHostVolumeClaim { id };
    let index = endpoints.server.submit(&allowed, command).await?;
    Ok(WriteResponse { index })
}

fn namespace_of(view: &View, claim: &str) -> Result<Option<String>, Refusal> {
    let scan = Scan::with_key_prefix::<Id>(claim);
    let claim = view.by_index_scan::<HostVolumeClaimsById>(scan).next();
    Ok(claim.transpose()?.map(|claim| claim.namespace))
}
