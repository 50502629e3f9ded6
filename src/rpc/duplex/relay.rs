//! Two streams as one.

use std::time::Duration;

use tokio::time::sleep;

use super::{Duplex, Inflow, LINGER, Outflow};

/// Hands on what comes over each of two streams to the other, as it came, until both ways have
/// ended. What breaks one breaks the other, and an end that takes nothing in holds up the one that
/// sends. Once `near`, the caller, is gone, what it sent last has a while to arrive; what the other
/// end sent last it may take in as slowly as it likes.
pub async fn relay(near: Duplex, far: Duplex) {
    relay_within(LINGER, near, far).await;
}

async fn relay_within(linger: Duration, mut near: Duplex, mut far: Duplex) {
    let gone = near.outflow.gone();
    let over = async {
        gone.await;
        sleep(linger).await;
    };
    // Neither side that is read is let go of before both ways are over: credit goes back by it.
    let both = async {
        tokio::join!(
            hand_on(&mut near.inflow, far.outflow),
            hand_on(&mut far.inflow, near.outflow)
        )
    };
    tokio::select! {
        _ = both => {}
        () = over => {}
    }
}

/// Dropped before its end, `to` breaks.
async fn hand_on(from: &mut Inflow, mut to: Outflow) {
    let gone = to.gone();
    tokio::pin!(gone);
    loop {
        let item = tokio::select! {
            item = from.next() => item,
            () = &mut gone => return,
        };
        match item {
            Ok(Some(item)) => {
                tokio::select! {
                    passed = to.pass(item) => {
                        if passed.is_err() {
                            return;
                        }
                    }
                    () = &mut gone => return,
                }
            }
            Ok(None) => return to.end(),
            Err(broken) => return to.fail(broken.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::duplex::{Item, Keepalive};

    /// Two ends with a relay between them.
    fn far_apart() -> (Duplex, Duplex) {
        let (near, one) = Duplex::pair(Keepalive::SESSION);
        let (other, far) = Duplex::pair(Keepalive::SESSION);
        tokio::spawn(relay_within(Duration::from_millis(50), one, other));
        (near, far)
    }

    #[tokio::test]
    async fn mod_30_what_goes_in_here_comes_out_there_messages_and_bodies_both_ways() {
        let (mut near, mut far) = far_apart();
        near.outflow.message(&"head").unwrap();
        let pieces = 64;
        let piece = Bytes::from(vec![7; 100 << 10]);
        let sent = async {
            for _ in 0..pieces {
                near.outflow.send(piece.clone()).await.unwrap();
            }
            near.outflow.end();
        };
        let taken = async {
            assert_eq!(far.inflow.message::<String>().await.unwrap(), "head");
            let mut came = 0;
            while let Some(data) = far.inflow.data().await.unwrap() {
                came += data.len();
            }
            assert_eq!(came, pieces * piece.len());
            far.outflow.message(&"told").unwrap();
            far.outflow.end();
        };
        tokio::join!(sent, taken);
        assert_eq!(near.inflow.message::<String>().await.unwrap(), "told");
        assert_eq!(near.inflow.next().await, Ok(None::<Item>));
    }

    #[tokio::test]
    async fn mod_30_what_breaks_at_one_end_breaks_at_the_other() {
        let (mut near, far) = far_apart();
        far.outflow.fail("it broke");
        let broken = near.inflow.next().await.unwrap_err();
        assert_eq!(broken.0, "it broke");
        // One that is let go of is not waited for, whichever end it is.
        for turned in [false, true] {
            let (near, far) = far_apart();
            let (gone, mut left) = if turned { (far, near) } else { (near, far) };
            drop(gone);
            left.inflow.next().await.unwrap_err();
            left.outflow.closed().await;
        }
    }

    /// What goes in at an end until its receiver is gone.
    async fn filled(outflow: &mut Outflow) {
        let piece = Bytes::from(vec![7; 32 << 10]);
        let wait = Duration::from_millis(200);
        while let Ok(sent) = tokio::time::timeout(wait, outflow.send(piece.clone())).await {
            sent.unwrap();
        }
    }

    #[tokio::test]
    async fn an_end_that_leaves_while_what_it_sends_is_not_taken_ends_the_other() {
        let (mut near, mut far) = far_apart();
        filled(&mut near.outflow).await;
        drop(near);
        let mut came = far.inflow.next().await;
        while let Ok(Some(_)) = came {
            came = far.inflow.next().await;
        }
        came.unwrap_err();
        far.outflow.closed().await;
    }

    #[tokio::test]
    async fn what_was_said_last_comes_to_who_takes_it_in_slowly() {
        let (mut near, mut far) = far_apart();
        let pieces = 64;
        let piece = Bytes::from(vec![7; 32 << 10]);
        let sending = async move {
            for _ in 0..pieces {
                far.outflow.send(piece.clone()).await.unwrap();
            }
            far.outflow.end();
            // It is gone, and everything that it sent is still on its way.
            drop(far.inflow);
        };
        let taken = async {
            let mut came = 0;
            while let Some(data) = near.inflow.data().await.unwrap() {
                came += data.len();
            }
            came
        };
        let ((), came) = tokio::join!(sending, taken);
        assert_eq!(came, pieces * (32 << 10));
    }
}
