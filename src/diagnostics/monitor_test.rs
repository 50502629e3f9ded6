use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use drover_testkit::until;

static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// One test at a time counts the listeners of this process, and begins when there are none: the
/// listeners of a test that ended go with its runtime, which is after its turn.
pub(crate) async fn turn() -> impl Drop {
    let turn = TURN.lock().await;
    let nobody = || (listeners() == 0).then_some(()).ok_or("somebody listens");
    drover_testkit::wait_for("nobody listens", drover_testkit::LONG, nobody).unwrap();
    turn
}

fn monitor_request(level: &str) -> MonitorRequest {
    MonitorRequest {
        log_level: level.into(),
        ..MonitorRequest::default()
    }
}

/// What comes until a line holds `end`.
async fn text(rx: &mut mpsc::Receiver<FileFrame>, end: &str) -> String {
    let mut all = String::new();
    let reported = async {
        while !all.contains(end) {
            let frame = rx.recv().await.expect("it goes on");
            all += &String::from_utf8(frame.data).expect("text");
        }
    };
    let in_time = tokio::time::timeout(drover_testkit::LONG, reported).await;
    in_time.unwrap_or_else(|_| panic!("no {end} in {all}"));
    all
}

fn logged<T>(work: impl FnOnce() -> T) -> T {
    // What the log itself shows has nothing to do with what listeners are shown.
    let silent = fmt::layer()
        .with_writer(io::sink)
        .with_filter(LevelFilter::OFF);
    let subscriber = tracing_subscriber::registry().with(silent).with(layer());
    tracing::subscriber::with_default(subscriber, work)
}

#[tokio::test]
async fn mod_23_each_listener_is_shown_its_level_in_its_form_whatever_the_log_shows() {
    let _turn = turn().await;
    let mut debug = listen(&monitor_request("debug")).unwrap();
    let mut warn = listen(&monitor_request("WARN")).unwrap();
    let mut off = listen(&monitor_request("off")).unwrap();
    let json = MonitorRequest {
        log_json: true,
        log_include_location: true,
        ..monitor_request("")
    };
    let mut json = listen(&json).unwrap();
    logged(|| {
        tracing::trace!("shown to nobody");
        tracing::debug!(key = 7, "only for details");
        tracing::info!(target: "hyper", "of a library");
        tracing::warn!(target: "hyper", "warned by a library");
        tracing::warn!(target: "openraft::core", "warned by raft");
        tracing::error!("the end");
    });
    let reported = text(&mut debug, "the end").await;
    assert!(reported.contains("only for details key=7\n"), "{reported}");
    assert!(reported.contains("warned by a library"), "{reported}");
    assert!(!reported.contains("shown to nobody") && !reported.contains("of a library"));
    assert!(!reported.contains("by raft"), "{reported}");
    let reported = text(&mut warn, "the end").await;
    assert_eq!(reported.lines().count(), 2, "{reported}");
    let reported = text(&mut json, "the end").await;
    let lines: Vec<serde_json::Value> = reported
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let end = lines.last().expect("a line");
    assert_eq!(
        (&end["level"], &end["fields"]["message"]),
        (&"ERROR".into(), &"the end".into())
    );
    assert!(
        end["filename"]
            .as_str()
            .unwrap()
            .ends_with("monitor_test.rs"),
        "{end}"
    );
    assert!(end["line_number"].as_u64().unwrap() > 0);
    let alive = off.recv().await.unwrap();
    assert_eq!(alive, FileFrame::default(), "nothing but that it is alive");
    let error = listen(&monitor_request("loud")).unwrap_err();
    assert_eq!(error, Refusal::bad_request("Unknown log level: loud"));
}

#[tokio::test]
async fn mod_23_who_is_slow_is_told_how_much_is_missing_and_where() {
    let _turn = turn().await;
    let mut rx = listen(&monitor_request("info")).unwrap();
    let many = LINES + 77;
    logged(|| {
        for n in 0..many {
            tracing::info!("line {n} of many");
        }
    });
    let reported = text(&mut rx, "are missing here").await;
    let lines: Vec<&str> = reported.lines().collect();
    let last = lines.last().unwrap();
    assert!(
        last.contains("WARN") && last.contains(" 77 lines are missing here"),
        "{last}"
    );
    assert_eq!(lines.len(), LINES + 1);
    assert!(lines[LINES - 1].ends_with(&format!("line {} of many", LINES - 1)));
    logged(|| tracing::info!("and on it goes"));
    let reported = text(&mut rx, "on it goes").await;
    assert_eq!(reported.lines().count(), 1, "said once: {reported}");
}

#[tokio::test]
async fn mod_23_a_long_line_comes_in_pieces_and_bytes_are_bounded_too() {
    let _turn = turn().await;
    let mut rx = listen(&monitor_request("info")).unwrap();
    let long = "x".repeat(PIECE + 10);
    logged(|| {
        tracing::info!("{long}");
        for _ in 0..(BYTES / PIECE) {
            tracing::info!("{long}");
        }
        tracing::info!("a short one");
    });
    let first = rx.recv().await.unwrap();
    assert_eq!(first.data.len(), PIECE);
    let reported = text(&mut rx, "a short one").await;
    assert!(reported.contains("missing here"), "{}", reported.len());
    assert!(reported.len() < BYTES, "{}", reported.len());
}

#[test]
fn mod_23_a_long_line_that_was_taken_leaves_its_place_to_the_next() {
    let listener = Listener {
        form: LineForm {
            json: false,
            location: false,
        },
        level: LevelFilter::INFO,
        queue: Mutex::default(),
        some: Notify::new(),
    };
    let long = vec![b'x'; PIECE + 10];
    for turn in 0..=BYTES / PIECE {
        listener.put(&long);
        let pieces = std::iter::from_fn(|| listener.take());
        let taken: Vec<usize> = pieces.map(|piece| piece.len()).collect();
        assert_eq!(taken, [PIECE, 10], "{turn}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_so_many_may_listen_and_who_left_is_gone() {
    let _turn = turn().await;
    let all: Vec<_> = (0..MOST)
        .map(|_| listen(&monitor_request("error")).unwrap())
        .collect();
    let error = listen(&monitor_request("error")).unwrap_err();
    assert_eq!(error.code, Code::TooManyRequests, "{error}");
    let text = LineForm {
        json: false,
        location: false,
    };
    assert_eq!(HUB.wanted(text), LevelFilter::ERROR);
    drop(all);
    until("all left", || listeners() == 0).await;
    assert_eq!(
        HUB.wanted(text),
        LevelFilter::OFF,
        "nothing is made for nobody"
    );
    listen(&monitor_request("error")).unwrap();
}
