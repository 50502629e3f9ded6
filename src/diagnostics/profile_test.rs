use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use drover_testkit::until;

fn profile_request(profile: &str, debug: i64) -> ProfileRequest {
    ProfileRequest {
        profile: profile.to_owned(),
        seconds: 1,
        debug,
        ..ProfileRequest::default()
    }
}

/// Spends time where it can be found.
#[inline(never)]
fn spends_time_here(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for n in 0..10_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_a_profile_shows_where_the_time_goes_one_at_a_time_and_ends_with_who_asked() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let busy = std::thread::Builder::new()
        .name("busy".to_owned())
        .spawn(|| spends_time_here(&STOP))
        .expect("starts");
    // A machine that is busy elsewhere may leave a second without a sample.
    let mut found = String::new();
    for _ in 0..10 {
        let text = profile(&profile_request("profile", 1))
            .await
            .expect("a profile");
        found = String::from_utf8(text.payload).expect("text");
        if found.contains("spends_time_here") {
            break;
        }
    }
    let line = found.lines().find(|line| line.contains("spends_time_here"));
    let line = line.unwrap_or_else(|| panic!("{found}"));
    assert!(line.starts_with("busy;"), "{line}");
    let (_, count) = line.rsplit_once(' ').expect("a number");
    assert!(count.parse::<u64>().expect("a number") > 0);

    let long = ProfileRequest {
        seconds: LONGEST,
        ..profile_request("profile", 0)
    };
    let other = tokio::spawn(async move { profile(&long).await });
    until("it began", || TURN.available_permits() == 0).await;
    let refused = profile(&profile_request("profile", 0))
        .await
        .expect_err("one at a time");
    assert_eq!(refused.code, Code::TooManyRequests, "{refused}");
    other.abort();
    let free = TURN.acquire().await.expect("never closed");
    drop(free);
    let tool = profile(&profile_request("profile", 0))
        .await
        .expect("a profile");
    assert_eq!(tool.payload[..2], [0x1f, 0x8b], "gzip");
    assert_eq!(tool.headers["Content-Type"], "application/octet-stream");
    STOP.store(true, Ordering::Relaxed);
    busy.join().expect("it ends");
}

#[tokio::test]
async fn mod_23_what_is_no_profile_is_said() {
    let error = |name: &str| {
        let request = profile_request(name, 0);
        async move {
            let error = profile(&request).await.expect_err("refused");
            (crate::net::status(error.code), error.message)
        }
    };
    assert_eq!(error("").await, (404, "Invalid method".to_owned()));
    assert_eq!(
        error("nope").await,
        (404, "Unknown profile: nope".to_owned())
    );
    for name in ["trace", "heap", "allocs", "block", "mutex"] {
        let (status, text) = error(name).await;
        assert_eq!(status, 501, "{text}");
        assert!(text.contains("not supported by this version: "), "{text}");
        let of_memory = ["heap", "allocs"].contains(&name);
        assert_eq!(
            text.contains("its allocator keeps no samples"),
            of_memory,
            "{text}"
        );
    }
    let request = ProfileRequest {
        seconds: LONGEST + 1,
        ..profile_request("profile", 0)
    };
    let error = profile(&request).await.expect_err("refused");
    assert_eq!(error.message, "seconds must be 1 to 300");
    let words = profile(&profile_request("cmdline", 0))
        .await
        .expect("the command");
    let first = std::env::args().next().expect("a name");
    assert!(
        String::from_utf8(words.payload)
            .expect("text")
            .starts_with(&first)
    );
    let threads = profile(&profile_request("goroutine", 0))
        .await
        .expect("threads");
    assert_eq!(threads.payload[..2], [0x1f, 0x8b]);
    let threads = profile(&profile_request("threadcreate", 2))
        .await
        .expect("threads");
    let text = String::from_utf8(threads.payload).expect("text");
    assert!(text.starts_with("threadcreate profile: total "), "{text}");
}
