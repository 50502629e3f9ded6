use std::collections::BTreeMap;
use std::fs;

use drover_csi::proto::volume_capability::access_mode::Mode;
use drover_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use drover_csi::proto::{
    self, CapacityRange, ControllerExpandVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest,
    DeleteVolumeRequest, VolumeContentSource,
};
use drover_csi::{CallError, Cause, Code, RetryDecision};

use crate::support::{Caller, Running, folder};

fn code(error: Result<impl std::fmt::Debug, CallError>) -> Code {
    match error.expect_err("it is refused").cause() {
        Cause::Answered(code) => code,
        other => panic!("no answer: {other:?}"),
    }
}

#[tokio::test]
async fn calls_in_the_wrong_order_are_refused_and_in_the_right_one_repeated() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let (staging, target) = (running.path("staging"), running.path("target"));
    fs::create_dir(&staging).unwrap();
    let id = calls.create("one").await.unwrap();
    let none = BTreeMap::new();
    let shown = BTreeMap::from([("attachment".to_owned(), format!("{id}@one"))]);

    // Before it is attached, and before it is staged.
    assert_eq!(
        code(calls.stage(&id, &staging, &shown).await),
        Code::FailedPrecondition
    );
    assert_eq!(code(calls.attach(&id, "nowhere").await), Code::NotFound);
    assert_eq!(calls.attach(&id, "one").await.unwrap(), shown);
    assert_eq!(calls.attach(&id, "one").await.unwrap(), shown);
    let early = calls.publish(&id, &staging, &target, &shown).await;
    assert_eq!(code(early), Code::FailedPrecondition);
    // Without what the controller gave.
    assert_eq!(
        code(calls.stage(&id, &staging, &none).await),
        Code::InvalidArgument
    );
    let nowhere = running.path("nowhere");
    assert_eq!(
        code(calls.stage(&id, &nowhere, &shown).await),
        Code::FailedPrecondition
    );
    for _ in 0..2 {
        calls.stage(&id, &staging, &shown).await.unwrap();
    }
    for _ in 0..2 {
        calls.publish(&id, &staging, &target, &shown).await.unwrap();
    }
    fs::write(target.join("file"), "kept").unwrap();

    taken_back(&running, &calls, &id).await;
}

/// Backwards, before what has to come first and after it.
async fn taken_back(running: &Running, calls: &Caller, id: &str) {
    let (staging, target) = (running.path("staging"), running.path("target"));
    let id = id.to_owned();
    assert_eq!(
        code(calls.unstage(&id, &staging).await),
        Code::FailedPrecondition
    );
    assert_eq!(
        code(calls.detach(&id, "one").await),
        Code::FailedPrecondition
    );
    let delete = || DeleteVolumeRequest {
        volume_id: id.clone(),
        ..Default::default()
    };
    let refused = calls.plugin.delete_volume(delete()).await;
    assert_eq!(code(refused), Code::FailedPrecondition);
    for _ in 0..2 {
        calls
            .unpublish(&id, &target)
            .await
            .expect("as the test needs it");
    }
    assert!(fs::symlink_metadata(&target).is_err(), "the target goes");
    let bytes = running.path("state/volumes").join(&id).join("file");
    assert_eq!(
        fs::read_to_string(bytes).expect("as the test needs it"),
        "kept",
        "what it holds stays"
    );
    assert_eq!(
        code(calls.detach(&id, "one").await),
        Code::FailedPrecondition
    );
    for _ in 0..2 {
        calls
            .unstage(&id, &staging)
            .await
            .expect("as the test needs it");
    }
    for _ in 0..2 {
        calls
            .detach(&id, "one")
            .await
            .expect("as the test needs it");
    }
    for _ in 0..2 {
        calls
            .plugin
            .delete_volume(delete())
            .await
            .expect("as the test needs it");
    }
    let gone = calls.unpublish(&id, &target).await.expect_err("it is gone");
    assert_eq!(gone.retry_decision(), RetryDecision::AlreadyDone);
}

#[tokio::test]
async fn a_volume_for_one_node_goes_to_no_second_one() {
    let running = Running::start(&["--links"]);
    // A second node of the same storage.
    let second = tempfile::tempdir().unwrap();
    let state = running.path("state").to_string_lossy().into_owned();
    let words = ["--links", "--node-id", "two", "--state-dir", &state];
    let mut other = std::process::Command::new(env!("CARGO_BIN_EXE_drover-hostpath"))
        .args(words)
        .args(["--endpoint", &second.path().join("s").to_string_lossy()])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut calls = Caller::new(running.patient());
    let single = calls.create("single").await.unwrap();
    calls.attach(&single, "one").await.unwrap();
    drover_testkit::eventually_async(
        "the second node",
        drover_testkit::LONG,
        async || match calls.attach(&single, "two").await.unwrap_err().cause() {
            Cause::Answered(Code::FailedPrecondition) => Ok(()),
            cause => Err(format!("{cause:?}")),
        },
    )
    .await
    .unwrap();
    calls.mode = Mode::MultiNodeMultiWriter;
    let many = calls.create("many").await.unwrap();
    for node in ["one", "two"] {
        calls.attach(&many, node).await.unwrap();
    }
    calls.mode = Mode::MultiNodeReaderOnly;
    assert_eq!(code(calls.attach(&many, "two").await), Code::AlreadyExists);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn what_is_known_outlives_the_plugin() {
    let mut running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let staging = running.path("staging");
    fs::create_dir(&staging).unwrap();
    let id = calls.create("one").await.unwrap();
    let shown = calls.attach(&id, "one").await.unwrap();
    calls.stage(&id, &staging, &shown).await.unwrap();
    running.kill();
    running.again();
    let calls = Caller::new(running.patient());
    assert_eq!(calls.create("one").await.unwrap(), id);
    assert_eq!(
        code(calls.detach(&id, "one").await),
        Code::FailedPrecondition
    );
    let target = running.path("target");
    calls.publish(&id, &staging, &target, &shown).await.unwrap();
}

#[tokio::test]
async fn what_grows_while_nobody_has_it_grows_then_and_only_then() {
    let running = Running::start(&["--links", "--offline"]);
    let calls = Caller::new(running.patient());
    let reported = calls.plugin.features(true, true).await.unwrap();
    assert!(reported.plugin.offline_expansion_only);
    let id = calls.create("one").await.unwrap();
    let grow = || {
        calls
            .plugin
            .controller_expand_volume(ControllerExpandVolumeRequest {
                volume_id: id.clone(),
                capacity_range: Some(CapacityRange {
                    required_bytes: 2 << 30,
                    ..Default::default()
                }),
                ..Default::default()
            })
    };
    calls.attach(&id, "one").await.unwrap();
    assert_eq!(code(grow().await), Code::FailedPrecondition);
    calls.detach(&id, "one").await.unwrap();
    let grown = grow().await.unwrap();
    assert_eq!(
        (grown.capacity_bytes, grown.node_expansion_required),
        (2 << 30, true)
    );
}

#[tokio::test]
async fn copies_hold_what_was_there_when_they_were_made() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let id = calls.create("one").await.unwrap();
    let bytes = |id: &str| running.path("state/volumes").join(id).join("file");
    fs::write(bytes(&id), "before").unwrap();
    let requested = CreateSnapshotRequest {
        source_volume_id: id.clone(),
        name: "snap".to_owned(),
        ..Default::default()
    };
    let snapshot = calls.plugin.snapshot(requested).await.unwrap();
    fs::write(bytes(&id), "after").unwrap();
    let made = async |name: &str, from| {
        let requested = CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: vec![folder(Mode::SingleNodeWriter)],
            volume_content_source: Some(VolumeContentSource { r#type: Some(from) }),
            ..Default::default()
        };
        calls.plugin.created(requested).await.unwrap().volume_id
    };
    let snapshot_id = snapshot.snapshot_id.clone();
    let old = made("old", Type::Snapshot(SnapshotSource { snapshot_id })).await;
    let new = made("new", Type::Volume(VolumeSource { volume_id: id })).await;
    assert_eq!(fs::read_to_string(bytes(&old)).unwrap(), "before");
    assert_eq!(fs::read_to_string(bytes(&new)).unwrap(), "after");
}

#[tokio::test]
async fn a_volume_with_a_secret_wants_it_with_every_call() {
    let running = Running::start(&["--links"]);
    let mut calls = Caller::new(running.patient());
    let secrets = BTreeMap::from([("secret".to_owned(), "correct-horse".to_owned())]);
    calls.secrets = secrets.clone();
    let id = calls.create("one").await.unwrap();
    let staging = running.path("staging");
    fs::create_dir(&staging).unwrap();
    let shown = calls.attach(&id, "one").await.unwrap();
    calls.secrets = BTreeMap::new();
    let target = running.path("target");
    assert_eq!(code(calls.attach(&id, "one").await), Code::Unauthenticated);
    assert_eq!(
        code(calls.stage(&id, &staging, &shown).await),
        Code::Unauthenticated
    );
    let refused = calls.publish(&id, &staging, &target, &shown).await;
    assert_eq!(code(refused), Code::Unauthenticated);
    assert_eq!(code(calls.detach(&id, "one").await), Code::Unauthenticated);
    calls.secrets = secrets;
    calls.stage(&id, &staging, &shown).await.unwrap();
    // The names of secrets are recorded, and not their values; here a parameter repeats them, which
    // no deployment should do.
    for line in running.record() {
        let mut requested = line["begin"].clone();
        if let Some(fields) = requested.as_object_mut() {
            fields.remove("parameters");
        }
        assert!(!requested.to_string().contains("correct-horse"), "{line}");
    }
}

#[tokio::test]
async fn a_page_goes_on_where_the_last_one_ended() {
    let running = Running::start(&["--links"]);
    let calls = Caller::new(running.patient());
    let mut made = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        made.push(calls.create(name).await.unwrap());
    }
    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        pages += 1;
        assert!(pages < 100, "{seen:?}");
        let requested = proto::ListVolumesRequest {
            max_entries: 2,
            starting_token: token,
        };
        let page = calls.plugin.list_volumes(requested).await.unwrap();
        assert!(page.entries.len() <= 2);
        let ids = page.entries.into_iter().flat_map(|entry| entry.volume);
        seen.extend(ids.map(|volume| volume.volume_id));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, made);
}
