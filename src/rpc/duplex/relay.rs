//! Two streams as one.

use super::{Duplex, Inflow, Outflow};

/// Hands on what comes over each of two streams to the other, as it came, until both ways have
/// ended. What breaks one breaks the other, and who takes nothing in holds up who sends.
pub async fn relay(one: Duplex, other: Duplex) {
    tokio::join!(
        hand_on(one.inflow, other.outflow),
        hand_on(other.inflow, one.outflow)
    );
}

async fn hand_on(mut from: Inflow, mut to: Outflow) {
    let gone = to.gone();
    tokio::pin!(gone);
    loop {
        let item = tokio::select! {
            item = from.next() => item,
            // Dropped before its end, the other one breaks too.
            () = &mut gone => return,
        };
        match item {
            Ok(Some(item)) => {
                if to.pass(item).await.is_err() {
                    return;
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
    use crate::rpc::duplex::{Item, Pace};

    /// Two ends with a relay between them.
    fn far_apart() -> (Duplex, Duplex) {
        let (near, one) = Duplex::pair(Pace::SESSION);
        let (other, far) = Duplex::pair(Pace::SESSION);
        tokio::spawn(relay(one, other));
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
}
