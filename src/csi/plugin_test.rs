use std::collections::BTreeMap;
use std::time::Duration;

use tempfile::TempDir;
use tonic::Status;

use crate::capability::{AttachmentMode, capability};
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::{
    ControllerPublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, ListVolumesRequest,
    NodeUnpublishVolumeRequest, ValidateVolumeCapabilitiesRequest,
};
use crate::{CallLimits, Cause, Code, Plugin, RetryDecision};
use drover_csifake::Fake;

const SECRET: &str = "correct-horse";

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn publish() -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: "vol".to_owned(),
        node_id: "n".to_owned(),
        secrets: BTreeMap::from([("key".to_owned(), SECRET.to_owned())]),
        ..Default::default()
    }
}

#[tokio::test]
async fn what_a_plugin_is_and_can() {
    let folder = folder();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let plugin = Plugin::at(&fake.socket);
    assert!(
        plugin.is_ready().await.unwrap(),
        "one that does not say is ready"
    );
    let identity = plugin.identity().await.unwrap();
    assert_eq!(identity.name, "fake.example.com");
    assert_eq!(identity.version, "1.2.3");
    let features = plugin.features(true, true).await.unwrap();
    assert!(features.node.unwrap().stage);
    assert!(features.plugin.controller && features.plugin.topologies);
    let controller = features.controller.unwrap();
    assert!(controller.create_delete && controller.attach_detach);
    assert!(!controller.expand, "what it does not say it cannot");
    assert!(!features.plugin.offline_expansion_only);
    use drover_csifake::proto::plugin_capability::volume_expansion::Type::{Offline, Online};
    for (grows, offline) in [
        (vec![Offline], true),
        (vec![Online], false),
        (vec![Offline, Online], false),
        (vec![Online, Offline], false),
    ] {
        *fake.says.grows.lock().unwrap() = grows.clone();
        let features = plugin.features(false, false).await.unwrap();
        assert_eq!(features.plugin.offline_expansion_only, offline, "{grows:?}");
        assert!(features.plugin.topologies);
    }
    let node = plugin.node_info().await.unwrap();
    assert_eq!(node.max_volumes, 0, "less than none means no limit");

    // What the fake does not implement at all.
    let error = plugin
        .list_volumes(ListVolumesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.cause(), Cause::Answered(Code::Unimplemented));
    assert_eq!(error.call(), "ListVolumes");
    assert_eq!(error.retry_decision(), RetryDecision::Permanent);
}

#[tokio::test]
async fn every_code_says_whether_to_try_again() {
    let folder = folder();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let plugin = Plugin::at(&fake.socket);
    use Code::*;
    let again = [
        Cancelled,
        Unknown,
        DeadlineExceeded,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        Internal,
        Unavailable,
        DataLoss,
    ];
    let refused = [
        InvalidArgument,
        AlreadyExists,
        PermissionDenied,
        OutOfRange,
        Unimplemented,
        Unauthenticated,
        NotFound,
    ];
    let cases = again.map(|code| (code, RetryDecision::Retry)).into_iter();
    for (code, wanted) in cases.chain(refused.map(|code| (code, RetryDecision::Permanent))) {
        *fake.says.refuses.lock().unwrap() = Some(Status::new(code, "it says why"));
        let error = plugin
            .controller_publish_volume(publish())
            .await
            .unwrap_err();
        assert_eq!(error.cause(), Cause::Answered(code));
        assert_eq!(error.retry_decision(), wanted, "{code:?}");
        let may_go_on = [Cancelled, DeadlineExceeded, Aborted].contains(&code);
        assert_eq!(error.has_ended(), !may_go_on, "{code:?}");
        assert_eq!(
            error.to_string(),
            format!("ControllerPublishVolume: {code:?}: it says why")
        );
    }
    // What is to be undone and is not there is undone.
    *fake.says.refuses.lock().unwrap() = Some(Status::new(NotFound, "no such volume"));
    let undone = plugin.node_unpublish_volume(NodeUnpublishVolumeRequest::default());
    assert_eq!(
        undone.await.unwrap_err().retry_decision(),
        RetryDecision::AlreadyDone
    );
}

#[tokio::test]
async fn a_call_ends_in_time_and_says_so_to_the_plugin() {
    let folder = folder();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let limits = CallLimits {
        quick: Duration::from_secs(60),
        work: Duration::from_millis(50),
    };
    let plugin = Plugin::with_limits(&fake.socket, limits);
    plugin.controller_publish_volume(publish()).await.ok();
    *fake.says.hangs.lock().unwrap() = true;
    let error = plugin
        .controller_publish_volume(publish())
        .await
        .unwrap_err();
    // Whichever is first, our clock or the plugin's, says the same.
    assert!(
        matches!(
            error.cause(),
            Cause::TimedOut(_)
                | Cause::Unreachable
                | Cause::Answered(Code::DeadlineExceeded | Code::Cancelled)
        ),
        "{error:?}"
    );
    assert_eq!(error.retry_decision(), RetryDecision::Retry);
    assert!(!error.has_ended(), "the plugin may do it yet");
    // The connection is whole.
    *fake.says.hangs.lock().unwrap() = false;
    plugin.identity().await.unwrap();
    let seen = fake.says.seen.lock().unwrap();
    assert_eq!(seen[0].1.as_deref(), Some("50000000n"));
}

#[tokio::test]
async fn no_socket_and_a_plugin_that_comes_back() {
    let folder = folder();
    let socket = folder.path().join("csi.sock");
    let plugin = Plugin::at(&socket);
    let error = plugin.identity().await.unwrap_err();
    assert_eq!(error.cause(), Cause::Unreachable);
    assert_eq!(error.retry_decision(), RetryDecision::Retry);
    assert!(error.text().contains("No such file"), "{error}");
    for _ in 0..3 {
        let fake = Fake::at(&socket);
        plugin.identity().await.unwrap();
        fake.stop().await;
        assert_eq!(
            plugin.identity().await.unwrap_err().retry_decision(),
            RetryDecision::Retry
        );
    }
}

#[tokio::test]
async fn bytes_that_are_no_answer_are_an_error() {
    let folder = folder();
    let socket = folder.path().join("csi.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n").await;
        }
    });
    let error = Plugin::at(&socket).identity().await.unwrap_err();
    assert_eq!(error.retry_decision(), RetryDecision::Retry, "{error:?}");
}

#[tokio::test]
async fn secrets_reach_the_plugin_and_nothing_else() {
    let folder = folder();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let plugin = Plugin::at(&fake.socket);
    let text = format!("login with {SECRET} failed, {}", "x".repeat(10_000));
    *fake.says.refuses.lock().unwrap() = Some(Status::internal(text));
    let error = plugin
        .controller_publish_volume(publish())
        .await
        .unwrap_err();
    for shown in [
        error.to_string(),
        format!("{error:?}"),
        error.text().to_owned(),
    ] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.len() < 3_000, "a plugin's text has an end");
        assert!(shown.contains("login with [REDACTED] failed"), "{shown}");
    }
    assert_eq!(publish().secrets["key"], SECRET);
    let requested = format!("{:?} {:#?}", publish(), publish());
    assert!(
        !requested.contains(SECRET) && requested.contains("\"vol\""),
        "{requested}"
    );
    // The fake shows what it was given in the same way.
    let seen = fake.says.seen.lock().unwrap();
    assert!(seen[0].0.contains("REDACTED"));
}

#[tokio::test]
async fn answers_that_break_the_specification_are_refused() {
    let folder = folder();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let plugin = Plugin::at(&fake.socket);
    *fake.says.name.lock().unwrap() = "x".repeat(64);
    *fake.says.id.lock().unwrap() = String::new();
    let nameless = plugin.identity().await.unwrap_err();
    let placeless = plugin.node_info().await.unwrap_err();
    let made = plugin
        .created(CreateVolumeRequest::default())
        .await
        .unwrap_err();
    let snapshot = CreateSnapshotRequest {
        source_volume_id: "mine".to_owned(),
        ..Default::default()
    };
    let taken = plugin.snapshot(snapshot).await.unwrap_err();
    for error in [nameless, placeless, made, taken] {
        assert_eq!(error.cause(), Cause::InvalidResponse, "{error}");
        assert_eq!(error.retry_decision(), RetryDecision::Permanent);
    }
}

#[tokio::test]
async fn a_use_counts_as_confirmed_only_when_the_plugin_repeats_it() {
    let folder = folder();
    let fake = Fake::at(&folder.path().join("csi.sock"));
    let plugin = Plugin::at(&fake.socket);
    let one = capability(
        Mode::SingleNodeWriter,
        AttachmentMode::FileSystem,
        "ext4",
        &[],
    );
    let other = capability(Mode::SingleNodeWriter, AttachmentMode::BlockDevice, "", &[]);
    let mut requested = ValidateVolumeCapabilitiesRequest {
        volume_id: "vol".to_owned(),
        volume_capabilities: vec![one],
        ..Default::default()
    };
    assert_eq!(plugin.can_be_used(requested.clone()).await.unwrap(), Ok(()));
    requested.volume_capabilities.push(other);
    assert!(plugin.can_be_used(requested).await.unwrap().is_err());
}

/// A call that takes a plugin and one request, whatever is in it.
fn takes_one<R: prost::Message, A>(_: impl AsyncFn(&Plugin, R) -> Result<A, crate::CallError>) {}

#[test]
fn csi_11_every_call_of_a_plugin_takes_one_request() {
    takes_one(Plugin::probe);
    takes_one(Plugin::get_plugin_info);
    takes_one(Plugin::get_plugin_capabilities);
    takes_one(Plugin::controller_get_capabilities);
    takes_one(Plugin::create_volume);
    takes_one(Plugin::delete_volume);
    takes_one(Plugin::controller_publish_volume);
    takes_one(Plugin::controller_unpublish_volume);
    takes_one(Plugin::validate_volume_capabilities);
    takes_one(Plugin::list_volumes);
    takes_one(Plugin::controller_expand_volume);
    takes_one(Plugin::create_snapshot);
    takes_one(Plugin::delete_snapshot);
    takes_one(Plugin::list_snapshots);
    takes_one(Plugin::node_get_capabilities);
    takes_one(Plugin::node_get_info);
    takes_one(Plugin::node_stage_volume);
    takes_one(Plugin::node_unstage_volume);
    takes_one(Plugin::node_publish_volume);
    takes_one(Plugin::node_unpublish_volume);
    takes_one(Plugin::node_expand_volume);
    // Also those that look at what came back.
    takes_one(Plugin::created);
    takes_one(Plugin::snapshot);
    takes_one(Plugin::can_be_used);
}
