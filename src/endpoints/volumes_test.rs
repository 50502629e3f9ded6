//! Which token may call what of volumes and plugins.

use drover_events::acl::SealedSecret;
use drover_events::model::{AclPolicy, AclToken, CsiSnapshot, CsiVolume};
use drover_projections::tables::acl_tokens::secret_hash as token_hash;

use super::acl_test::{NODE, ROOT, World};
use super::*;
use crate::commands::acl::{CreateAclToken, TtlBounds, UpsertAclPolicies};
use crate::error::Code;
use crate::proposer::Origin;
use crate::rpc::Rpc;
use crate::rpc::csi::{CsiVolumeUnpublishRequest, NamedClaim};
use crate::rpc::volumes::*;

/// Tokens with a policy each, and the methods that each may call.
const TOKENS: [(&str, &str, &[&str]); 9] = [
    ("", "", &[]),
    (
        "a0000001-2222-4333-8444-555555555555",
        r#"namespace "default" { capabilities = ["csi-list-volume"] }"#,
        &["CSIVolume.List"],
    ),
    (
        "a0000002-2222-4333-8444-555555555555",
        r#"namespace "default" { capabilities = ["csi-list-volume"] }
           plugin { policy = "read" }"#,
        &[
            "CSIVolume.List",
            "CSIVolume.ListExternal",
            "CSIVolume.ListSnapshots",
            "CSIPlugin.List",
            "CSIPlugin.Get",
        ],
    ),
    (
        "a0000003-2222-4333-8444-555555555555",
        r#"namespace "default" { capabilities = ["csi-write-volume"] }"#,
        &["CSIVolume.Deregister"],
    ),
    (
        "a0000004-2222-4333-8444-555555555555",
        r#"namespace "default" { capabilities = ["csi-write-volume"] }
           plugin { policy = "read" }"#,
        &[
            "CSIVolume.Register",
            "CSIVolume.Deregister",
            "CSIVolume.Create",
            "CSIVolume.Delete",
            "CSIVolume.CreateSnapshot",
            "CSIVolume.DeleteSnapshot",
            "CSIPlugin.List",
            "CSIPlugin.Get",
        ],
    ),
    (
        "a0000005-2222-4333-8444-555555555555",
        r#"namespace "other" { policy = "write" }
           plugin { policy = "list" }"#,
        &["CSIPlugin.List"],
    ),
    (
        "a0000006-2222-4333-8444-555555555555",
        r#"namespace "default" { capabilities = ["csi-mount-volume"] }
           plugin { policy = "read" }"#,
        &[
            "CSIVolume.List",
            "CSIVolume.Get",
            "CSIPlugin.List",
            "CSIPlugin.Get",
            "CSIVolume.Unpublish",
        ],
    ),
    ("a0000007-2222-4333-8444-555555555555", "", &[]),
    (NODE, "", &[]),
];

async fn give(world: &World, secret: &str, rules: &str) {
    let name = format!("p-{}", &secret[..8]);
    let policy = AclPolicy {
        name: name.clone(),
        rules: rules.to_owned(),
        ..AclPolicy::default()
    };
    let policies = vec![policy];
    let server = &world.server;
    let policies = server.submit(UpsertAclPolicies { policies }, Origin::default());
    policies.await.unwrap();
    let token = CreateAclToken {
        token: AclToken {
            accessor_id: format!("{}-0000-4000-8000-000000000000", &secret[..8]),
            r#type: "client".into(),
            policies: vec![name].into(),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: token_hash(secret),
            ..SealedSecret::default()
        },
        ttl: TtlBounds {
            min: Duration::ZERO,
            max: Duration::MAX,
        },
    };
    server.submit(token, Origin::default()).await.unwrap();
}

/// What each method answers to a token; none where it is done.
async fn answers(world: &World, token: &str) -> Vec<(&'static str, Option<Code>)> {
    let mut answers = Vec::new();
    macro_rules! ask {
        ($($method:ident($requested:expr)),* $(,)?) => {$(
            let answer = world.call::<$method>(("", token), $requested).await;
            answers.push(($method::NAME, answer.err().map(|error| error.code)));
        )*};
    }
    let one = || VolumesRequest {
        volumes: vec![CsiVolume {
            id: "x".into(),
            plugin_id: "p".into(),
            ..CsiVolume::default()
        }]
        .into(),
        ..VolumesRequest::default()
    };
    let gone = || VolumeIdsRequest {
        volume_ids: vec!["x".into()],
        ..VolumeIdsRequest::default()
    };
    let snapshot = || SnapshotsRequest {
        snapshots: vec![CsiSnapshot {
            id: "s".into(),
            plugin_id: "p".into(),
            source_volume_id: "x".into(),
            ..CsiSnapshot::default()
        }]
        .into(),
        ..SnapshotsRequest::default()
    };
    let external = || ExternalRequest {
        plugin_id: "p".into(),
        ..ExternalRequest::default()
    };
    let named = || NamedRequest {
        id: "x".into(),
        ..NamedRequest::default()
    };
    let released = CsiVolumeUnpublishRequest {
        volume_id: "x".into(),
        claim: Some(NamedClaim {
            allocation_id: "a".into(),
            ..NamedClaim::default()
        }),
        ..CsiVolumeUnpublishRequest::default()
    };
    ask!(
        VolumeList(VolumeListRequest::default()),
        VolumeGet(named()),
        VolumeRegister(one()),
        VolumeDeregister(gone()),
        VolumeCreate(one()),
        VolumeDelete(gone()),
        VolumeListExternal(external()),
        SnapshotCreate(snapshot()),
        SnapshotDelete(snapshot()),
        SnapshotList(external()),
        PluginList(PluginListRequest::default()),
        PluginGet(named()),
        PluginDelete(named()),
        CsiVolumeUnpublish(released),
    );
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_csi_17_csi_18_csi_20_each_method_asks_for_its_own_right() {
    let world = World::start(true).await;
    for (secret, rules, _) in TOKENS {
        if !rules.is_empty() {
            give(&world, secret, rules).await;
        }
    }
    for (secret, rules, may) in TOKENS {
        for (method, code) in answers(&world, secret).await {
            let allowed = code != Some(Code::PermissionDenied);
            assert_eq!(
                allowed,
                may.contains(&method),
                "{method} by {rules:?}: {code:?}"
            );
        }
    }
    for (method, code) in answers(&world, ROOT).await {
        assert_ne!(code, Some(Code::PermissionDenied), "{method}");
        let reads = [
            "CSIVolume.List",
            "CSIVolume.Get",
            "CSIPlugin.List",
            "CSIPlugin.Get",
        ];
        // There is nothing to be changed; what is given back twice is given back.
        if method != "CSIVolume.Unpublish" {
            let read = reads.contains(&method);
            assert_eq!(code.is_none(), read, "{method}: {code:?}");
        }
    }
    world.server.shutdown().await;
}
