use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::*;

const QUICK: Pace = Pace {
    beat: Duration::from_millis(20),
    silence: Duration::from_millis(400),
};
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn mod_30_what_goes_in_at_one_end_comes_out_at_the_other_in_order() {
    let (mut one, mut other) = Duplex::pair(QUICK);
    one.outflow.message(&("head", 7)).unwrap();
    one.outflow.send(Bytes::from_static(b"body")).await.unwrap();
    one.outflow.end();
    let head: (String, u8) = other.inflow.message().await.unwrap();
    assert_eq!(head, ("head".to_owned(), 7));
    assert_eq!(other.inflow.data().await.unwrap().unwrap(), "body");
    assert_eq!(other.inflow.data().await.unwrap(), None);
    assert_eq!(other.inflow.data().await.unwrap(), None, "it stays so");
    // One way is over, the other goes on.
    let back = Bytes::from_static(b"answer");
    other.outflow.send(back.clone()).await.unwrap();
    other.outflow.end();
    assert_eq!(one.inflow.data().await.unwrap(), Some(back));
    assert_eq!(one.inflow.data().await.unwrap(), None);
}

#[tokio::test]
async fn much_passes_a_small_window_whole_after_its_own_way_has_ended() {
    let (mut one, mut other) = Duplex::pair(QUICK);
    // The reader says nothing himself any more, and gives credit all the same.
    other.outflow.end();
    let piece = Bytes::from(vec![7; 3 * LONGEST + 5]);
    let rounds = 4 * WINDOW / piece.len();
    let sent = tokio::spawn({
        let piece = piece.clone();
        async move {
            for _ in 0..rounds {
                one.outflow.send(piece.clone()).await.unwrap();
            }
            one.outflow.end();
            one.inflow
        }
    });
    let mut taken = 0;
    while let Some(data) = timeout(SOON, other.inflow.data()).await.unwrap().unwrap() {
        assert!(data.iter().all(|byte| *byte == 7));
        taken += data.len();
    }
    assert_eq!(taken, rounds * piece.len());
    drop(sent.await.unwrap());
}

#[tokio::test]
async fn mod_30_nobody_sends_more_than_the_window_to_one_who_does_not_read() {
    let (mut one, mut other) = Duplex::pair(QUICK);
    let piece = Bytes::from(vec![0; LONGEST]);
    for _ in 0..WINDOW / LONGEST {
        one.outflow.send(piece.clone()).await.unwrap();
    }
    let more = timeout(QUICK.silence * 3, one.outflow.send(piece)).await;
    assert!(more.is_err(), "it waits, and nothing breaks meanwhile");
    // What was taken may be sent again, and the silence of a slow reader broke nothing.
    let mut taken = 0;
    while taken < WINDOW {
        taken += other.inflow.data().await.unwrap().unwrap().len();
    }
    let again = one.outflow.send(Bytes::from_static(b"more"));
    timeout(SOON, again).await.unwrap().unwrap();
}

#[tokio::test]
async fn whoever_goes_without_a_word_breaks_the_stream() {
    let (mut one, other) = Duplex::pair(QUICK);
    drop(other);
    timeout(SOON, one.outflow.closed()).await.unwrap();
    assert!(one.inflow.next().await.is_err());
    let waiting = async {
        while one
            .outflow
            .send(Bytes::from(vec![0; LONGEST]))
            .await
            .is_ok()
        {}
    };
    timeout(SOON, waiting)
        .await
        .expect("a sender does not wait");

    let (mut one, other) = Duplex::pair(QUICK);
    other.outflow.fail("the file is gone");
    let broken = one.inflow.next().await.unwrap_err();
    assert_eq!(broken.to_string(), "the file is gone");
}

#[tokio::test]
async fn mod_30_silence_is_borne_only_so_long_and_a_sign_of_life_ends_it() {
    let (half, body) = Half::new(QUICK);
    // A body that says nothing, as of a machine that stands still.
    let nothing = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<hyper::body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let mut stream = half.join(nothing);
    let broken = timeout(SOON, stream.inflow.next()).await.unwrap();
    assert!(broken.unwrap_err().0.contains("silent"));
    assert!(stream.outflow.send(Bytes::from_static(b"x")).await.is_err());
    drop(body);

    let (one, mut other) = Duplex::pair(QUICK);
    let waited = timeout(QUICK.silence * 3, other.inflow.next()).await;
    assert!(waited.is_err(), "nothing came, and nothing broke");
    drop(one);
}

#[tokio::test]
async fn frames_may_be_cut_anywhere_and_lies_about_their_length_break_the_stream() {
    let (half, body) = Half::new(QUICK);
    let Duplex {
        mut outflow,
        inflow,
    } = half.join(http_body_util::Empty::<Bytes>::new());
    outflow.message(&"hello").unwrap();
    outflow.end();
    drop(inflow);
    let sent = body.collect().await.unwrap().to_bytes();
    let bytes = sent.iter().map(|byte| {
        let piece = hyper::body::Frame::data(Bytes::copy_from_slice(&[*byte]));
        Ok::<_, std::convert::Infallible>(piece)
    });
    let bytes: Vec<_> = bytes.collect();
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(bytes));
    let (half, _out) = Half::new(QUICK);
    let mut stream = half.join(body);
    assert_eq!(stream.inflow.message::<String>().await.unwrap(), "hello");
    assert_eq!(stream.inflow.next().await.unwrap(), None);

    for lie in [
        [DATA, 0, 1, 0, 1],
        [MESSAGE, 0xff, 0xff, 0xff, 0xff],
        [CREDIT, 0, 0, 0, 5],
        [BROKEN, 0, 1, 0, 0],
        [END, 0, 0, 0, 1],
        [99, 0, 0, 0, 1],
    ] {
        let (half, _out) = Half::new(QUICK);
        let body = http_body_util::Full::new(Bytes::copy_from_slice(&lie));
        let mut stream = half.join(body);
        let broken = timeout(SOON, stream.inflow.next()).await.unwrap();
        assert!(broken.unwrap_err().0.contains("too long"), "{lie:?}");
    }
}
