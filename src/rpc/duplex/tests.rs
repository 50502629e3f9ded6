use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::*;

const QUICK: Keepalive = Keepalive {
    interval: Duration::from_millis(20),
    timeout: Duration::from_millis(400),
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
async fn credit_still_flows_after_the_reader_ended_its_own_direction() {
    let (mut one, mut other) = Duplex::pair(QUICK);
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
    let full = WINDOW / (LONGEST + COST);
    for _ in 0..full {
        one.outflow.send(piece.clone()).await.unwrap();
    }
    let more = timeout(QUICK.timeout * 3, one.outflow.send(piece)).await;
    assert!(more.is_err(), "it waits, and nothing breaks meanwhile");
    // Reading gives credit back, so as much may be sent again; the slow reader's silence broke
    // nothing.
    let mut taken = 0;
    while taken < full * LONGEST {
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
async fn mod_30_a_stream_breaks_after_too_long_a_silence_and_beats_prevent_that() {
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
    let waited = timeout(QUICK.timeout * 3, other.inflow.next()).await;
    assert!(waited.is_err(), "nothing came, and nothing broke");
    drop(one);
}

#[tokio::test]
async fn a_sign_of_life_is_sent_once_in_an_interval() {
    let began = tokio::time::Instant::now();
    let (_half, body) = Half::new(QUICK);
    let mut body = std::pin::pin!(body);
    for beat in 1..=3 {
        let piece = timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(piece.into_data().unwrap(), frame(BEAT, b""));
        assert!(began.elapsed() >= QUICK.interval * beat, "beat {beat}");
    }
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
        [99, 0, 1, 0, 1],
    ] {
        let (half, _out) = Half::new(QUICK);
        let body = http_body_util::Full::new(Bytes::copy_from_slice(&lie));
        let mut stream = half.join(body);
        let broken = timeout(SOON, stream.inflow.next()).await.unwrap();
        assert!(broken.unwrap_err().0.contains("too long"), "{lie:?}");
    }
}

/// A body of these bytes that then says nothing.
fn saying(frames: Vec<u8>) -> impl Body<Data = Bytes, Error = std::convert::Infallible> + Send {
    use futures_util::StreamExt;
    let sent = futures_util::stream::iter([Ok(hyper::body::Frame::data(Bytes::from(frames)))]);
    http_body_util::StreamBody::new(sent.chain(futures_util::stream::pending()))
}

fn frame(kind: u8, carried: &[u8]) -> Vec<u8> {
    let length = u32::try_from(carried.len()).unwrap().to_be_bytes();
    [&[kind], &length[..], carried].concat()
}

#[tokio::test]
async fn mod_30_who_sends_without_credit_or_gives_it_for_nothing_breaks_the_stream() {
    let piece = vec![0; LONGEST];
    let data: Vec<u8> = (0..=WINDOW / LONGEST)
        .flat_map(|_| frame(DATA, &piece))
        .collect();
    let tiny: Vec<u8> = (0..=WINDOW / COST)
        .flat_map(|_| frame(DATA, b"x"))
        .collect();
    let messages: Vec<u8> = (0..=MESSAGE_WINDOW / COST)
        .flat_map(|_| frame(MESSAGE, b"\xc0"))
        .collect();
    let credit = frame(CREDIT, &1_u32.to_be_bytes());
    for (sent, why) in [
        (data, "more came"),
        (tiny, "more came"),
        (messages, "more came"),
        (frame(DATA, b""), "has none"),
        (credit, "not sent"),
    ] {
        let (half, _out) = Half::new(QUICK);
        let mut stream = half.join(saying(sent));
        // Nothing is read until the stream broke, so that no credit goes back.
        timeout(SOON, stream.outflow.credit.acquire_many(WINDOW as u32 + 1))
            .await
            .unwrap()
            .unwrap_err();
        let broken = loop {
            match stream.inflow.came.recv().await.unwrap() {
                Ok(_) => {}
                Err(broken) => break broken,
            }
        };
        assert!(broken.0.contains(why), "{broken}");
    }
    // What a later release says besides is passed over.
    let (half, _out) = Half::new(QUICK);
    let sent = [frame(99, b"news"), frame(MESSAGE, b"\xc0"), frame(END, b"")].concat();
    let mut stream = half.join(saying(sent));
    stream.inflow.message::<Option<u8>>().await.unwrap();
    assert_eq!(stream.inflow.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_byte_stream_ends_at_once_when_its_peer_is_dropped_even_unread() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut one, other) = Duplex::pair(QUICK);
    let mut bytes = bytes_of(other);
    bytes.write_all(b"heard").await.unwrap();
    assert_eq!(one.inflow.data().await.unwrap().unwrap(), "heard");
    // More comes than its reader takes.
    for _ in 0..4 {
        one.outflow
            .send(Bytes::from(vec![7; LONGEST]))
            .await
            .unwrap();
    }
    drop(one);
    let ended = async { while bytes.write_all(b"x").await.is_ok() {} };
    timeout(SOON, ended).await.expect("nobody is there");
    let mut rest = Vec::new();
    timeout(SOON, bytes.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
}

/// Agents of two releases speak with each other: these bytes stay as they are.
#[tokio::test]
async fn mod_30_frames_are_the_bytes_they_always_were() {
    let (half, body) = Half::new(QUICK);
    let (_other, theirs) = Half::new(QUICK);
    let mut near = half.join(theirs);
    near.outflow.message(&("head", 7)).unwrap();
    near.outflow
        .send(Bytes::from_static(b"body"))
        .await
        .unwrap();
    near.outflow.end();
    let mut body = std::pin::pin!(body);
    let mut sent = Vec::new();
    let expected = concat!(
        // A message: kind, length, MessagePack.
        "02",
        "00000007",
        "92a46865616407",
        // Data.
        "01",
        "00000004",
        "626f6479",
        // The end.
        "04",
        "00000000",
    );
    while sent.len() < expected.len() / 2 {
        let piece = timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
        sent.extend_from_slice(&piece.into_data().unwrap());
    }
    assert_eq!(hex::encode(&sent), expected);
    // What is read of each kind, and of one that a later release may send.
    let came = concat!(
        "00", "00000000", "03", "00000004", "00000000", "63", "00000002", "ffff", "02", "00000001",
        "07", "01", "00000002", "6869", "04", "00000000",
    );
    let came = hex::decode(came).unwrap();
    let body = http_body_util::Full::new(Bytes::from(came));
    let (half, _sent) = Half::new(QUICK);
    let mut near = half.join(body);
    assert_eq!(near.inflow.message::<u8>().await.unwrap(), 7);
    assert_eq!(near.inflow.data().await.unwrap().unwrap(), "hi");
    assert_eq!(near.inflow.data().await.unwrap(), None);
}
