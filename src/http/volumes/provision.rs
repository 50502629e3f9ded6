//! What has to be done at the plugin of a volume: making and deleting it, snapshots, lists of its
//! provider, and giving back what ended allocations left on a node.
//!
//! Refusals of plugins are 500 with the step's name and the plugin's own text, as Nomad's are.

use drover_events::gojson::{List, Map};
use drover_events::model::{CsiSnapshot, CsiVolume, CsiVolumeExternalStub};

use super::csi::WRITE;
use crate::acl::{Acl, NamespaceCapability as Ns};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::{Late, Write, in_namespace};
use crate::http::request::Request;
use crate::rpc::csi::Secrets;
use crate::table_reads::spawn_detached;
use crate::volumes::{PageQuery, StepError, Volumes};

/// Using them.
pub(in crate::http) const MOUNT: &[Ns] = &[Ns::CsiMountVolume];

/// To see what a provider has: not only callers that see the jobs may.
pub(in crate::http) const EXTERNAL: &[Ns] = &[Ns::CsiListVolume];

/// Where secrets of a request stand: `name=value`, separated by commas.
const SECRETS: &str = "X-Nomad-CSI-Secrets";

drover_events::wire! {
    struct CreateRequest {
        volumes: List<CsiVolume> = "Volumes",
    }

    pub(crate) struct CreateResponse {
        volumes: List<CsiVolume> = "Volumes",
        warnings: String = "Warnings",
    }

    struct ExternalResponse {
        volumes: List<CsiVolumeExternalStub> = "Volumes",
        next_token: String = "NextToken",
    }

    struct SnapshotsRequest {
        snapshots: List<CsiSnapshot> = "Snapshots",
    }

    pub(crate) struct SnapshotsCreated {
        snapshots: List<CsiSnapshot> = "Snapshots",
    }

    pub(crate) struct SnapshotsResponse {
        snapshots: List<CsiSnapshot> = "Snapshots",
        next_token: String = "NextToken",
    }
}

/// A refusal, as clients know it: what went wrong at the plugin is a failure of the request.
fn refused(error: StepError) -> Refusal {
    match error.step {
        "" => error.into(),
        _ => Refusal::by_rule(error.to_string()),
    }
}

/// Runs work on volumes off the threads that serve, to its end, whether or not it is waited for.
pub(super) async fn run_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, StepError>> + Send + 'static,
) -> Result<T, Refusal> {
    spawn_detached(work).await?.map_err(refused)
}

/// Whether a caller may do this in the namespace of the request, and see plugins (CSI-17).
fn may(acl: &Acl, namespace: &str, any_of: &[Ns]) -> bool {
    in_namespace(acl, namespace, any_of) && acl.plugin_read()
}

fn admitted(late: Late, any_of: &[Ns]) -> Result<Write, Refusal> {
    let allowed = may(late.acl(), late.request.namespace(), any_of);
    late.authorize(allowed)
}

fn volume_service(write: &Write) -> &Volumes {
    &write.api.server.volumes
}

/// The secrets in the head of a request.
fn secrets(request: &Request) -> Result<Secrets, Refusal> {
    let text = request.header(SECRETS).unwrap_or_default();
    let mut secrets = Secrets::default();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            Refusal::bad_request(format!("{SECRETS} must be name=value, separated by commas"))
        })?;
        secrets.0.insert(name.trim().to_owned(), value.to_owned());
    }
    Ok(secrets)
}

fn page(request: &Request) -> Result<PageQuery, Refusal> {
    Ok(PageQuery {
        most: request.query.number("per_page")?.unwrap_or_default(),
        token: request.query.text("next_token").to_owned(),
    })
}

fn plugin(request: &Request) -> Result<String, Refusal> {
    match request.query.text("plugin_id") {
        "" => Err(Refusal::bad_request("missing plugin ID")),
        id => Ok(id.to_owned()),
    }
}

/// `PUT /v1/volume/csi/:id/create`.
pub(in crate::http) async fn create(late: Late) -> Result<Answer, Refusal> {
    let body: CreateRequest = late.json().await?;
    let mut volumes = body.volumes.into_vec();
    for volume in volumes
        .iter_mut()
        .filter(|volume| volume.namespace.is_empty())
    {
        late.request.namespace().clone_into(&mut volume.namespace);
    }
    let acl = late.acl();
    let allowed = volumes
        .iter()
        .all(|volume| may(acl, &volume.namespace, WRITE));
    let allowed = allowed && may(acl, late.request.namespace(), WRITE);
    let write = late.authorize(allowed)?;
    let named = write.request.segment(3)?;
    if volumes.iter().any(|volume| volume.id != named) {
        return Err(Refusal::bad_request(
            "Volume ID does not match request path",
        ));
    }
    let warnings = super::warnings(&write.request);
    let made = async move {
        volume_service(&write)
            .create(volumes, &write.origin())
            .await
    };
    let (volumes, index) = run_detached(made).await?;
    let answer = CreateResponse {
        volumes: volumes.into(),
        warnings,
    };
    Ok(Answer::json(&answer)?.written(index))
}

/// `DELETE /v1/volume/csi/:id/delete`.
pub(in crate::http) async fn delete(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, WRITE)?;
    let key = (
        write.request.namespace().to_owned(),
        write.request.segment(3)?,
    );
    let secrets = secrets(&write.request)?;
    let deleted = async move {
        volume_service(&write)
            .delete(&key, secrets, &write.origin())
            .await
    };
    Ok(Answer::nothing().written(run_detached(deleted).await?))
}

/// `DELETE /v1/volume/csi/:id/detach`.
pub(in crate::http) async fn detach(late: Late) -> Result<Answer, Refusal> {
    let allowed = late.acl().csi_mount_allows(late.request.namespace());
    let write = late.authorize(allowed)?;
    let node = write.request.query.text("node").to_owned();
    if node.is_empty() {
        return Err(Refusal::bad_request("detach requires node ID"));
    }
    let key = (
        write.request.namespace().to_owned(),
        write.request.segment(3)?,
    );
    let force = super::force(&write.request)?;
    let detached = async move {
        let on = (node.as_str(), force);
        volume_service(&write)
            .detach(&key, on, &write.origin())
            .await
    };
    Ok(Answer::nothing().written(run_detached(detached).await?))
}

/// `GET /v1/volumes/external`.
pub(in crate::http) async fn external(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, EXTERNAL)?;
    let (plugin, page) = (plugin(&write.request)?, page(&write.request)?);
    let listed = async move { volume_service(&write).external(&plugin, page).await };
    let (volumes, next_token) = run_detached(listed).await?;
    Answer::json(&ExternalResponse {
        volumes,
        next_token,
    })
}

/// `GET /v1/volumes/snapshot`.
pub(in crate::http) async fn snapshots(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, EXTERNAL)?;
    let (plugin, page) = (plugin(&write.request)?, page(&write.request)?);
    let secrets = secrets(&write.request)?;
    let listed = async move {
        volume_service(&write)
            .snapshots(&plugin, page, secrets)
            .await
    };
    let (snapshots, next_token) = run_detached(listed).await?;
    let without = |mut snapshot: CsiSnapshot| {
        snapshot.secrets = Map::nil();
        snapshot
    };
    let snapshots: Vec<_> = snapshots.into_vec().into_iter().map(without).collect();
    Answer::json(&SnapshotsResponse {
        snapshots: snapshots.into(),
        next_token,
    })
}

/// `PUT /v1/volumes/snapshot`.
pub(in crate::http) async fn create_snapshots(late: Late) -> Result<Answer, Refusal> {
    let body: SnapshotsRequest = late.json().await?;
    let write = admitted(late, WRITE)?;
    let wanted = body.snapshots.into_vec();
    let made = async move {
        let namespace = write.request.namespace();
        volume_service(&write)
            .create_snapshots(namespace, wanted)
            .await
    };
    let snapshots = run_detached(made).await?.into();
    Answer::json(&SnapshotsCreated { snapshots })
}

/// `DELETE /v1/volumes/snapshot`.
pub(in crate::http) async fn delete_snapshot(late: Late) -> Result<Answer, Refusal> {
    let write = admitted(late, WRITE)?;
    let plugin = plugin(&write.request)?;
    let id = write.request.query.text("snapshot_id").to_owned();
    if id.is_empty() {
        return Err(Refusal::bad_request("missing snapshot ID"));
    }
    let secrets = secrets(&write.request)?;
    let deleted = async move {
        volume_service(&write)
            .delete_snapshot(&plugin, &id, secrets)
            .await
    };
    run_detached(deleted).await?;
    Ok(Answer::nothing())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{self, Strictness};

    #[test]
    fn csi_17_what_a_provider_has_is_for_who_may_list_volumes_and_read_plugins() {
        let plugins = "plugin { policy = \"read\" }";
        for (of_namespace, of_plugins, allowed) in [
            ("list-jobs", plugins, false),
            ("csi-read-volume", plugins, false),
            ("csi-list-volume", plugins, true),
            ("csi-list-volume", "", false),
        ] {
            let rules = format!(
                "namespace \"red\" {{ capabilities = [\"{of_namespace}\"] }}\n{of_plugins}"
            );
            let policy = acl::parse(&rules, Strictness::Strict).unwrap();
            let acl = Acl::compile(&[&policy]);
            assert_eq!(may(&acl, "red", EXTERNAL), allowed, "{rules}");
            assert!(!may(&acl, "blue", EXTERNAL), "{rules}");
        }
    }
}
