//! Tables built again and compared while callers read, write and wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use drover_testkit::{LONG, eventually, eventually_async};
use serde_json::{Value, json};

use super::harness::Harness;
use crate::commands::cluster::RecordDigests;
use crate::history::rebuild::{DigestCheck, OnlineSettings};
use crate::server::Agreed;

const REBUILD: &str = "/v1/operator/projections/rebuild";
const VERIFY: &str = "/v1/operator/projections/verify";

/// Waits for the end of what was begun.
async fn ended(h: &Harness) -> Value {
    let status = async || {
        let status = h.get(REBUILD).await.json();
        match status["Running"] == false {
            true => Ok(status),
            false => Err(status),
        }
    };
    let status = eventually_async("its end", LONG, status).await;
    status.unwrap()
}

/// Waits until what was recorded is compared: that comes after the answer to the caller that
/// recorded it.
async fn compared(h: &Harness, done: impl Fn(&Agreed) -> bool) {
    let look = || {
        let agreed = h.server.agreed();
        done(&agreed).then_some(()).ok_or(format!("{agreed:?}"))
    };
    let compared = eventually("it to be compared", LONG, look).await;
    compared.unwrap();
}

async fn variables(h: &Harness, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let body = json!({"Items": {"v": "x".repeat(200), "n": number.to_string()}});
        let answer = h.put(&format!("/v1/var/v/{}", number % 40), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// Reads until it is over: every read is answered, and no index falls.
async fn read_all_the_time(h: Arc<Harness>, over: Arc<AtomicBool>, reads: Arc<AtomicU64>) {
    let digests = "/v1/operator/digests";
    let mut last = 0;
    while !over.load(Ordering::Relaxed) {
        for path in ["/v1/vars", "/v1/var/v/7", digests, "/v1/evaluations"] {
            let answer = h.get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            if path == digests {
                let index = answer.json()["Index"].as_u64().unwrap();
                assert!(index >= last, "{index} after {last}");
                last = index;
            }
            reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_fails_and_no_write_waits_while_the_tables_are_built_again() {
    let h = Arc::new(Harness::start().await);
    variables(&h, 0..200).await;
    let wait = h.get("/v1/vars").await.index();
    let (over, reads) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let reader = tokio::spawn(read_all_the_time(
        Arc::clone(&h),
        Arc::clone(&over),
        Arc::clone(&reads),
    ));
    let before = h.server.projections.path();
    let begun = h.put(REBUILD, &json!({})).await;
    assert_eq!(begun.status, 200, "{}", begun.text());
    variables(&h, 200..260).await;
    let done = ended(&h).await;
    assert_eq!(done["Stage"], "done", "{done}");
    let result = &done["Result"];
    assert!(result["CutOverMs"].as_f64().unwrap() < 5_000.0, "{result}");
    let old = &result["Compared"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&old["With"], &old["Different"]),
        (&json!("the old database"), &json!([]))
    );
    assert_ne!(h.server.projections.path(), before);
    assert!(!before.exists(), "it is retired");
    // Who waited before the switch is woken by a change after it.
    let index = h.get("/v1/vars").await.index();
    assert!(index > wait);
    let target = format!("/v1/vars?wait=60s&index={index}");
    let (woken, ()) = tokio::join!(h.get(&target), variables(&h, 300..301));
    assert!(woken.index() > index);
    over.store(true, Ordering::Relaxed);
    reader.await.unwrap();
    assert!(reads.load(Ordering::Relaxed) > 4);
    assert_eq!(h.put(VERIFY, &json!({})).await.status, 200);
    let verified = ended(&h).await;
    assert_eq!(verified["Result"]["Verified"], true, "{verified}");
    let held = h.get("/v1/operator/projections").await.json();
    assert_eq!(held["SetAside"].as_array().unwrap().len(), 1, "{held}");
    assert_eq!(held["Building"], false);
    let removed = h
        .ask("DELETE", "/v1/operator/projections/kept", "")
        .await
        .json();
    assert_eq!(removed["Removed"], 1);
    // A second one in the same run goes to a third directory.
    assert_eq!(
        h.put(REBUILD, &json!({"DiscardOld": true})).await.status,
        200
    );
    assert_eq!(ended(&h).await["Stage"], "done");
    assert!(
        h.server
            .projections
            .path()
            .ends_with("projections-rebuild-2")
    );
    variables(&h, 301..303).await;
    Arc::into_inner(h).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_is_cancelled_and_goes_on_and_there_is_one_at_a_time() {
    let h = Harness::start().await;
    variables(&h, 0..50).await;
    let before = h.server.projections.path();
    assert_eq!(h.put(REBUILD, &json!({"Rate": 1})).await.status, 200);
    assert_eq!(h.put(REBUILD, &json!({})).await.status, 409);
    assert_eq!(h.put(VERIFY, &json!({})).await.status, 409);
    assert_eq!(h.ask("DELETE", REBUILD, "").await.status, 200);
    let status = ended(&h).await;
    assert_eq!(status["Stage"], "cancelled", "{status}");
    assert_eq!(h.server.projections.path(), before);
    assert_eq!(h.put(REBUILD, &json!({})).await.status, 200);
    let done = ended(&h).await;
    assert_eq!(done["Stage"], "done", "{done}");
    // There is nothing to be cancelled, by whichever name.
    let idle = h.ask("DELETE", "/v1/operator/projections/verify", "").await;
    assert_eq!(idle.status, 200, "{}", idle.text());
    assert_eq!(idle.json()["Stage"], "done");
    for bad in [
        json!({"Memory": 0}),
        json!({"Memory": 5000}),
        json!({"Speed": 3}),
        json!([]),
    ] {
        assert_eq!(h.put(REBUILD, &bad).await.status, 400, "{bad}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_space_for_it_a_rebuild_is_refused_and_nothing_is_left() {
    let h = Harness::start().await;
    variables(&h, 0..20).await;
    let before = h.server.projections.path();
    let settings = OnlineSettings {
        reserve: u64::MAX / 4,
        ..OnlineSettings::default()
    };
    assert!(h.server.begin_rebuild(settings).unwrap());
    let status = ended(&h).await;
    assert_eq!(status["Stage"], "failed");
    let error = status["Error"].as_str().unwrap();
    assert!(error.contains("the disk is full"), "{error}");
    assert_eq!(h.server.projections.path(), before);
    assert!(!crate::history::rebuild::beside(&before).exists());
    variables(&h, 20..22).await;
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_records_the_digests_and_every_verification_meets_them() {
    let h = Harness::start().await;
    variables(&h, 0..1_050).await;
    let deadline = Instant::now() + LONG;
    while h.server.agreed().at != Some(1_024) {
        let agreed = h.server.agreed();
        assert!(Instant::now() < deadline, "not recorded: {agreed:?}");
        variables(&h, 0..1).await;
    }
    assert_eq!(h.server.agreed().differs_at, None);
    assert_eq!(h.get("/v1/agent/health").await.status, 200);
    let scratch = tempfile::tempdir().unwrap();
    let check = DigestCheck {
        also: Vec::new(),
        signed_to: u64::MAX,
        log_dir: h.server.raft.log().dir().to_owned(),
        to: None,
        scratch: scratch.path().to_owned(),
        cancelled: &AtomicBool::new(false),
    };
    h.server.raft.log().sync().unwrap();
    let checked = check.run(&mut |_| ()).unwrap();
    assert!(checked.findings.is_empty(), "{:?}", checked.findings);
    assert_eq!(checked.recorded, 1);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_differs_from_what_is_recorded_says_so_and_marks_its_tables() {
    let h = Harness::start().await;
    variables(&h, 0..3).await;
    let mut digests = h.server.projections.view().digests_at(0).unwrap().unwrap();
    let record = |digests: &[_]| {
        let command = RecordDigests::of(0, digests, "another");
        h.server.submit(command, h.server.origin("test"))
    };
    record(&digests).await.unwrap();
    compared(&h, |agreed| agreed.at == Some(0)).await;
    assert_eq!(h.get("/v1/agent/health").await.status, 200);
    digests[3].digest.0[5] ^= 1;
    record(&digests).await.unwrap();
    let mark = drover_projections::damage_mark(&h.server.projections.path());
    compared(&h, |agreed| agreed.differs_at.is_some() && mark.exists()).await;
    let health = h.get("/v1/agent/health").await;
    assert_eq!(health.status, 500);
    assert!(
        health.text().contains("not what the cluster recorded"),
        "{}",
        health.text()
    );
    let shown = h.get("/v1/operator/digests").await.json();
    assert_eq!(shown["Recorded"]["DiffersAt"], 0, "{shown}");
    assert_eq!(shown["Recorded"]["Different"], json!([digests[3].name]));
    let data = h.data.path().join("server");
    assert!(mark.starts_with(data));
    let early = RecordDigests::of(1 << 40, &digests, "another");
    h.server
        .submit(early, h.server.origin("test"))
        .await
        .unwrap_err();
    h.stop().await;
}
