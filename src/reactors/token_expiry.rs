//! Tokens that have expired are removed, a while after they stopped being good for anything; and
//! one-time tokens at once. A token that has expired grants nothing, whether it was removed or not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_projections::apply::EXPIRED_PAGE;
use drover_projections::tables::acl_tokens::{AclTokens, AclTokensByExpiration};
use drover_projections::tables::one_time_tokens::{OneTimeTokens, OneTimeTokensByExpiration};
use drover_projections::{Interest, Reply, StorageError, View};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::each::Each;
use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::commands::Command;
use crate::commands::acl::{DeleteAclTokens, DeleteExpiredOneTimeTokens, DeleteOneTimeTokens};

/// How many tokens one activation removes at most.
const BATCH: usize = 1_000;
/// How often it is looked where nothing is due before.
const INTERVAL: Duration = Duration::from_secs(300);
/// The shortest pause between two looks: several that expire together go together.
const PAUSE: Duration = Duration::from_secs(1);

pub struct TokenExpiry {
    /// How long a token that has expired is kept.
    keep: Duration,
    /// What could not be removed the last time: it has its turn again after the others.
    deferred: Mutex<BTreeSet<String>>,
    /// The same of one-time tokens, by the accessors of the tokens that they stand for.
    deferred_one_time: Mutex<BTreeSet<String>>,
}

/// What one look found.
struct Due {
    accessors: Vec<String>,
    /// When the next one is due, Unix nanoseconds.
    next: i64,
}

impl TokenExpiry {
    /// Keeps tokens that have expired for so long.
    pub fn new(keep: Duration) -> Self {
        Self {
            keep,
            deferred: Mutex::default(),
            deferred_one_time: Mutex::default(),
        }
    }

    /// Local or global tokens that expired before the cutoff, the oldest first.
    fn due(
        &self,
        view: &View,
        cutoff: i64,
        deferred: &BTreeSet<String>,
        each: &mut Each,
    ) -> Result<Due, StorageError> {
        let mut due = Due {
            accessors: Vec::new(),
            next: i64::MAX,
        };
        for global in [false, true] {
            for row in view.by_index::<AclTokensByExpiration>(global) {
                let Some(token) = each.row(row)?.map(|row| row.token) else {
                    continue;
                };
                let expires = token.expiration_time.map_or(i64::MAX, |time| time.0);
                if expires > cutoff || due.accessors.len() == BATCH {
                    due.next = due.next.min(expires);
                    break;
                }
                if !deferred.contains(&token.accessor_id) {
                    due.accessors.push(token.accessor_id);
                }
            }
        }
        Ok(due)
    }

    /// Removes tokens with one event, and where that is refused, fewer and fewer, until what is
    /// wrong is found and the others are gone. How many went, and which could not.
    async fn remove(
        &self,
        context: &Context,
        each: &mut Each,
        (what, accessors): (&str, Vec<String>),
        deletion: impl Fn(Vec<String>) -> Arc<dyn Command>,
    ) -> Result<(u64, Vec<String>), Failure> {
        let (mut removed, mut failed) = (0, Vec::new());
        let mut todo = vec![accessors];
        while let Some(mut accessors) = todo.pop() {
            if accessors.is_empty() {
                continue;
            }
            let command = deletion(accessors.clone());
            match context.proposer.submit(command, self.name()).await {
                Ok(done) => {
                    removed += match done.reply {
                        Reply::Count(count) => count,
                        _ => accessors.len() as u64,
                    }
                }
                Err(error) if error.concerns_all() => return Err(error.into()),
                Err(_) if accessors.len() > 1 => {
                    let rest = accessors.split_off(accessors.len() / 2);
                    todo.extend([rest, accessors]);
                }
                Err(error) => {
                    each.fail(&format!("{what} {}", accessors[0]), &error);
                    failed.append(&mut accessors);
                }
            }
        }
        Ok((removed, failed))
    }

    /// Removes one-time tokens that ran out; how many, and when the next one does.
    async fn one_time(&self, context: &Context, each: &mut Each) -> Result<(u64, i64), Failure> {
        let (now, mut removed) = (context.clock.now(), 0);
        let mut deferred = std::mem::take(&mut *self.deferred_one_time.lock());
        loop {
            let due = run_out(&context.projections.view(), now, &deferred, each)?;
            let page = due.accessors.len();
            if page == 0 {
                return Ok((removed, due.next));
            }
            let goes_on = if due.damaged {
                let one_time = ("one-time token", due.accessors);
                let deletion = |accessor_ids| -> Arc<dyn Command> {
                    Arc::new(DeleteOneTimeTokens { accessor_ids })
                };
                let (went, failed) = self.remove(context, each, one_time, deletion).await?;
                removed += went;
                let got_on = went > 0 || !failed.is_empty();
                self.deferred_one_time.lock().extend(failed.iter().cloned());
                deferred.extend(failed);
                got_on && page == EXPIRED_PAGE
            } else {
                let command = Arc::new(DeleteExpiredOneTimeTokens { expired_by: now });
                let done = context.proposer.submit(command, self.name()).await;
                let count = match each.take("one-time tokens", done).map(|done| done.reply) {
                    Some(Reply::Count(count)) => count,
                    Some(_) => page as u64,
                    None => return Ok((removed, now)),
                };
                removed += count;
                count >= EXPIRED_PAGE as u64
            };
            if !goes_on {
                return Ok((removed, due.next));
            }
        }
    }
}

/// One-time tokens that have run out.
struct RunOut {
    /// The first of them, a page at most.
    accessors: Vec<String>,
    /// Whether one cannot be read among them.
    damaged: bool,
    /// When there is more to do, Unix nanoseconds.
    next: i64,
}

fn run_out(
    view: &View,
    now: i64,
    deferred: &BTreeSet<String>,
    each: &mut Each,
) -> Result<RunOut, StorageError> {
    let mut found = RunOut {
        accessors: Vec::new(),
        damaged: false,
        next: i64::MAX,
    };
    for row in view.by_index::<OneTimeTokensByExpiration>(()) {
        let Some(token) = each.row(row)? else {
            found.damaged = true;
            continue;
        };
        if token.expires_at.0 > now || found.accessors.len() == EXPIRED_PAGE {
            found.next = token.expires_at.0;
            break;
        }
        if !deferred.contains(&token.accessor_id) {
            found.accessors.push(token.accessor_id);
        }
    }
    Ok(found)
}

impl Reactor for TokenExpiry {
    fn name(&self) -> &'static str {
        "token_expiry"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        const INTERESTS: &[Interest] = &[
            Interest::table::<AclTokens>(),
            Interest::table::<OneTimeTokens>(),
        ];
        INTERESTS
    }

    fn activate<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async move {
            let mut each = Each::default();
            let now = context.clock.now();
            let keep = i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX);
            let cutoff = now.saturating_sub(keep);
            let deferred = std::mem::take(&mut *self.deferred.lock());
            let view = context.projections.view();
            let due = self.due(&view, cutoff, &deferred, &mut each)?;
            drop(view);
            let deletion = |accessor_ids| -> Arc<dyn Command> {
                Arc::new(DeleteAclTokens {
                    accessor_ids,
                    expired_by: cutoff,
                })
            };
            let tokens = ("token", due.accessors);
            let (removed, failed) = self.remove(context, &mut each, tokens, deletion).await?;
            self.deferred.lock().extend(failed);
            let (one_time, next) = self.one_time(context, &mut each).await?;
            let mut status = json!({ "Removed": removed, "OneTimeRemoved": one_time });
            each.report(&mut status);
            let next = next.min(due.next.saturating_add(keep)).saturating_sub(now);
            let sleep = Duration::from_nanos(u64::try_from(next).unwrap_or(0));
            Ok(Activation {
                sleep: sleep.clamp(PAUSE, INTERVAL),
                status,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use drover_events::acl::{AclTokensUpserted, OneTimeTokensUpserted, SealedSecret, SealedToken};
    use drover_events::cluster::VersionBarrierRaised;
    use drover_events::gojson::{GoTime, Time};
    use drover_events::model::{AclToken, OneTimeToken};
    use drover_projections::Scan;

    use super::*;
    use crate::base::clock::Clock;
    use crate::error::Code;
    use crate::reactors::testing::{Direct, Fault, Faulty};

    const HOUR: i64 = 3600 * 1_000_000_000;

    fn accessor(number: usize) -> String {
        format!("00000000-0000-4000-8000-{number:012}")
    }

    fn token(number: usize, global: bool, expires: Option<i64>) -> SealedToken {
        SealedToken {
            token: AclToken {
                accessor_id: accessor(number),
                r#type: "management".into(),
                global,
                expiration_time: expires.map(GoTime),
                ..AclToken::default()
            },
            secret: SealedSecret {
                hash: format!("hash-{number}"),
                ..SealedSecret::default()
            },
        }
    }

    fn world(now: i64) -> Arc<Direct> {
        let direct = Direct::new();
        direct.apply(VersionBarrierRaised {
            level: drover_migrations::FEATURE_LEVEL,
            ..VersionBarrierRaised::default()
        });
        let mut tokens: Vec<_> = (0..20)
            .map(|n| token(n, n % 2 == 0, Some(now - HOUR - 1)))
            .collect();
        tokens.push(token(20, false, Some(now - HOUR + 60_000_000_000)));
        tokens.push(token(21, false, None));
        direct.apply(AclTokensUpserted { tokens });
        for (number, expires) in [(20, now - 1), (21, now + 100 * HOUR)] {
            direct.apply(OneTimeTokensUpserted {
                token: OneTimeToken {
                    accessor_id: accessor(number),
                    expires_at: Time(expires),
                    ..OneTimeToken::default()
                },
                secret: SealedSecret::default(),
            });
        }
        direct
    }

    fn left(direct: &Direct) -> Vec<String> {
        let view = direct.projections.view();
        let rows = view.scan::<AclTokens>(Scan::all());
        rows.map(|row| row.unwrap().token.accessor_id).collect()
    }

    fn context(
        direct: &Arc<Direct>,
        proposer: Arc<dyn crate::proposer::decided::Propose>,
    ) -> Context {
        Context {
            projections: Arc::clone(&direct.projections),
            proposer,
            clock: Clock::stopped(crate::base::clock::unix_nanos()),
        }
    }

    #[tokio::test]
    async fn what_expired_long_enough_ago_goes_and_what_is_next_is_waited_for() {
        let now = crate::base::clock::unix_nanos();
        let direct = world(now);
        let mut context = context(&direct, direct.clone());
        context.clock = Clock::stopped(now);
        let reactor = TokenExpiry::new(Duration::from_secs(3600));
        let done = reactor.activate(&context).await.unwrap();
        assert_eq!(done.status["Removed"], 20);
        assert_eq!(done.status["OneTimeRemoved"], 1);
        assert_eq!(left(&direct), [accessor(20), accessor(21)]);
        assert_eq!(done.sleep, Duration::from_secs(60));
    }

    #[tokio::test]
    async fn one_that_cannot_be_removed_keeps_nobody_from_its_turn() {
        let now = crate::base::clock::unix_nanos();
        let direct = world(now);
        let faulty = Faulty::new(&direct, &accessor(7), Fault::Error(Code::Internal));
        let mut context = context(&direct, faulty.clone());
        context.clock = Clock::stopped(now);
        let reactor = TokenExpiry::new(Duration::from_secs(3600));
        let done = reactor.activate(&context).await.unwrap();
        assert_eq!(
            (&done.status["Removed"], &done.status["Failed"]),
            (&json!(19), &json!(1))
        );
        assert_eq!(left(&direct), [accessor(7), accessor(20), accessor(21)]);
        faulty.heal();
        for _ in 0..2 {
            reactor.activate(&context).await.unwrap();
        }
        assert_eq!(left(&direct), [accessor(20), accessor(21)]);
    }
}
