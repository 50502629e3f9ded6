//! A number of bytes (or of calls) that all callers share, and of which none may hold too much.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use drover_error::{Code, Refusal};

/// One address holds at most this part of a budget.
const SHARE: usize = 4;
/// How long a request waits for what others hold, in all: a body that comes piece by piece has no
/// such time for each of them.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What can be held at once.
#[derive(Debug)]
pub struct Budget {
    free: Semaphore,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    all: usize,
    /// What is held beyond all, since that became less: once it is given back it is not available
    /// again.
    owed: usize,
    held: HashMap<IpAddr, usize>,
}

/// What one request holds; it is given back when this is dropped.
#[derive(Debug)]
pub struct Hold {
    budget: Arc<Budget>,
    address: IpAddr,
    held: usize,
    /// How long it has waited until now.
    waited: Duration,
}

impl Budget {
    /// So much in all; a quarter of it for one address.
    #[must_use]
    pub fn new(all: usize) -> Arc<Self> {
        let all = all.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            free: Semaphore::new(all),
            kept: Mutex::new(Kept {
                all,
                owed: 0,
                held: HashMap::new(),
            }),
        })
    }

    /// So much in all from now on; what is held stays held.
    pub fn resize(&self, all: usize) {
        let all = all.min(Semaphore::MAX_PERMITS);
        let mut kept = self.kept.lock();
        let before = std::mem::replace(&mut kept.all, all);
        let less = before.saturating_sub(all);
        kept.owed += less - self.free.forget_permits(less);
        self.give(&mut kept, all.saturating_sub(before));
    }

    /// Gives this much free, but for what is owed.
    fn give(&self, kept: &mut Kept, amount: usize) {
        let paid = amount.min(kept.owed);
        kept.owed -= paid;
        self.free.add_permits(amount - paid);
    }

    /// What an address takes of it: nothing yet.
    #[must_use]
    pub fn hold(self: &Arc<Self>, address: IpAddr) -> Hold {
        Hold {
            budget: Arc::clone(self),
            address: address.to_canonical(),
            held: 0,
            waited: Duration::ZERO,
        }
    }

    /// How much is free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.available_permits()
    }

    fn charge(&self, address: IpAddr, amount: usize) -> Result<(), Refusal> {
        let mut kept = self.kept.lock();
        let share = kept.all / SHARE;
        if amount > share {
            let text = format!(
                "this takes {amount} bytes, and an address has {share} at once: see \
                 limits.max_body_bytes_in_flight"
            );
            return Err(Refusal::new(Code::PayloadTooLarge, text));
        }
        let now = kept.held.get(&address).copied().unwrap_or(0);
        if now + amount > share {
            let text = "this address has too much under way at once; try again later";
            return Err(Refusal::new(Code::TooManyRequests, text));
        }
        kept.held.insert(address, now + amount);
        Ok(())
    }

    fn discharge(&self, address: IpAddr, amount: usize) {
        self.kept.lock().discharge(address, amount);
    }
}

impl Kept {
    fn discharge(&mut self, address: IpAddr, amount: usize) {
        if let Some(now) = self.held.get_mut(&address) {
            *now = now.saturating_sub(amount);
            if *now == 0 {
                self.held.remove(&address);
            }
        }
    }
}

/// What an address is charged while it waits; given back also where it gives up waiting.
struct Charge<'b> {
    budget: &'b Budget,
    address: IpAddr,
    amount: usize,
}

impl<'b> Charge<'b> {
    fn on(budget: &'b Budget, address: IpAddr, amount: usize) -> Result<Self, Refusal> {
        budget.charge(address, amount)?;
        Ok(Self {
            budget,
            address,
            amount,
        })
    }

    /// It has what it waited for.
    fn keep(mut self) {
        self.amount = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.budget.discharge(self.address, self.amount);
        }
    }
}

pub fn busy() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "the server holds as many requests as it can; try again later",
    )
}

impl Hold {
    /// Another of the same address, with nothing in it yet.
    #[must_use]
    pub fn another(&self) -> Self {
        self.budget.hold(self.address)
    }

    /// Takes more, and waits some seconds for it where it must.
    ///
    /// # Errors
    /// 413: no address may hold so much. 429: this one holds its share. 503: others hold
    /// everything.
    pub async fn take(&mut self, amount: usize) -> Result<(), Refusal> {
        if self.try_take(amount).is_ok() {
            return Ok(());
        }
        let charge = Charge::on(&self.budget, self.address, amount)?;
        let wanted = u32::try_from(amount).unwrap_or(u32::MAX);
        let (begun, left) = (Instant::now(), PATIENCE.saturating_sub(self.waited));
        let taken = tokio::time::timeout(left, self.budget.free.acquire_many(wanted)).await;
        self.waited += begun.elapsed();
        let Ok(Ok(permit)) = taken else {
            return Err(busy());
        };
        permit.forget();
        charge.keep();
        self.held += amount;
        Ok(())
    }

    /// Takes more if it is there.
    ///
    /// # Errors
    /// As [`Hold::take`].
    pub fn try_take(&mut self, amount: usize) -> Result<(), Refusal> {
        let charge = Charge::on(&self.budget, self.address, amount)?;
        let wanted = u32::try_from(amount).unwrap_or(u32::MAX);
        let permit = self.budget.free.try_acquire_many(wanted);
        permit.map_err(|_| busy())?.forget();
        charge.keep();
        self.held += amount;
        Ok(())
    }

    /// Gives all of it back before its end.
    pub fn give_back(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            let mut kept = self.budget.kept.lock();
            kept.discharge(self.address, held);
            self.budget.give(&mut kept, held);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[tokio::test]
    async fn who_gives_up_waiting_is_charged_for_nothing() {
        let budget = Budget::new(400);
        let mut holds: Vec<Hold> = (1..=4).map(|n| budget.hold(address(n))).collect();
        for hold in &mut holds {
            hold.take(100).await.unwrap();
        }
        let mut hold = budget.hold(address(5));
        for _ in 0..10 {
            // Polled once, so that it waits, and dropped.
            let mut waits = Box::pin(hold.take(60));
            assert!(futures_util::poll!(&mut waits).is_pending());
            assert_eq!(budget.kept.lock().held.get(&address(5)), Some(&60));
            drop(waits);
            assert_eq!(budget.kept.lock().held.get(&address(5)), None);
        }
        drop(holds);
        hold.take(100).await.unwrap();
        drop(hold);
        assert_eq!(budget.free(), 400);
        assert!(budget.kept.lock().held.is_empty(), "nothing is remembered");
    }

    #[tokio::test]
    async fn who_takes_piece_by_piece_waits_no_longer_in_all_than_who_takes_all_at_once() {
        let budget = Budget::new(400);
        let mut holds: Vec<Hold> = (1..=4).map(|n| budget.hold(address(n))).collect();
        for hold in &mut holds {
            hold.take(100).await.unwrap();
        }
        let mut hold = budget.hold(address(5));
        {
            let mut waiting = std::pin::pin!(hold.take(60));
            assert!(waiting.as_mut().now_or_never().is_none(), "it waits");
            drop(holds.pop());
            waiting.await.expect("what was given back is taken");
        }
        assert!(hold.waited > Duration::ZERO, "it is counted");
        let mut other = budget.hold(address(6));
        other.take(40).await.unwrap();
        // As after many pieces, and after half as many.
        hold.waited = PATIENCE;
        let mut fresh = budget.hold(address(7));
        fresh.waited = PATIENCE / 2;
        // The first is looked at first: it is refused first also where all stands still for long.
        let refused = tokio::select! {
            biased;
            refused = hold.take(40) => refused.unwrap_err(),
            _ = fresh.take(40) => panic!("no time is left"),
        };
        assert_eq!(refused.code, Code::Unavailable);
    }

    #[tokio::test]
    async fn what_is_taken_from_it_while_it_is_held_is_nobodys_afterwards() {
        let budget = Budget::new(400);
        let mut holds: Vec<Hold> = (1..=4).map(|n| budget.hold(address(n))).collect();
        for hold in &mut holds {
            hold.take(90).await.unwrap();
        }
        budget.resize(100);
        assert_eq!(budget.free(), 0);
        let mut late = budget.hold(address(5));
        let refused = late.try_take(26).unwrap_err();
        assert_eq!(refused.code, Code::PayloadTooLarge, "a quarter of what is");
        drop(holds.drain(..2));
        assert_eq!(budget.free(), 0, "180 are held, and there are 100");
        budget.resize(200);
        assert_eq!(budget.free(), 20);
        drop(holds);
        assert_eq!(budget.free(), 200);
        late.try_take(50).unwrap();
        budget.resize(400);
        assert_eq!(budget.free(), 350);
        drop(late);
        assert_eq!(budget.free(), 400);
    }

    #[tokio::test]
    async fn nobody_holds_more_than_a_share_and_all_not_more_than_there_is() {
        let budget = Budget::new(400);
        let mut holds: Vec<Hold> = (1..=4).map(|n| budget.hold(address(n))).collect();
        for hold in &mut holds {
            hold.take(60).await.unwrap();
            let refused = hold.take(41).await.unwrap_err();
            assert_eq!(refused.code, Code::TooManyRequests);
            hold.take(40).await.unwrap();
        }
        let mut late = budget.hold(address(5));
        assert_eq!(late.try_take(1).unwrap_err().code, Code::Unavailable);
        drop(holds.pop());
        late.take(100).await.unwrap();
        let mut hold = budget.hold(address(6));
        {
            let mut waiting = std::pin::pin!(hold.take(7));
            assert!(waiting.as_mut().now_or_never().is_none(), "it waits");
            drop(late);
            waiting.await.expect("what was given back is taken");
        }
        drop(hold);
        drop(holds);
        assert_eq!(budget.free(), 400);
        assert!(budget.kept.lock().held.is_empty(), "nothing is remembered");
    }
}
