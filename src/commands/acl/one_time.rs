//! Commands about one-time tokens: a short secret that is given away in the place of a token's own.

use drover_error::Refusal;
use drover_events::acl::*;
use drover_events::gojson::Time;
use drover_events::model::OneTimeToken;
use drover_projections::query::acl::one_time_token_by_hash;
use drover_projections::tables::acl_tokens::AclTokens;
use drover_projections::tables::one_time_tokens::{OneTimeTokens, OneTimeTokensByExpiration};
use drover_projections::{Reply, View};

use super::require_acl_support;
use crate::{Command, Decision, Stamp};

/// How long a one-time token lives, nanoseconds: ten minutes.
const LIFE: i64 = 600 * 1_000_000_000;

/// A one-time token is issued, in the place of one the same token had.
#[derive(Clone, Debug)]
pub struct IssueOneTimeToken {
    /// The token it stands for.
    pub accessor_id: String,
    pub secret_hash: String,
}

impl Command for IssueOneTimeToken {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        let known = view.get::<AclTokens>(self.accessor_id.as_str())?;
        let expires = known.as_ref().and_then(|known| known.token.expiration_time);
        if known.is_none() || expires.is_some_and(|time| time.0 <= stamp.now) {
            return Err(Refusal::permission_denied());
        }
        Ok(Decision::unguarded(OneTimeTokensUpserted {
            token: OneTimeToken {
                accessor_id: self.accessor_id.clone(),
                expires_at: Time(stamp.now.saturating_add(LIFE)),
                ..OneTimeToken::default()
            },
            secret: SealedSecret {
                hash: self.secret_hash.clone(),
                ..SealedSecret::default()
            },
        }))
    }
}

/// A one-time token is used up. Only one of those that try gets an answer.
#[derive(Clone, Debug)]
pub struct ExchangeOneTimeToken {
    pub secret_hash: String,
}

impl Command for ExchangeOneTimeToken {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        let known = one_time_token_by_hash(view, &self.secret_hash)?;
        let valid = known.filter(|known| known.expires_at.0 > stamp.now);
        let known = valid.ok_or_else(Refusal::permission_denied)?;
        let guard = view.guard::<OneTimeTokens>(known.accessor_id.as_str())?;
        let accessor_ids = vec![known.accessor_id.clone()];
        Ok(Decision::guarded(
            OneTimeTokensDeleted { accessor_ids },
            vec![guard],
        ))
    }
}

/// One-time tokens that have run out are removed by their names where one of them cannot be read:
/// removal by rule would fail at that one.
#[derive(Clone, Debug)]
pub struct DeleteOneTimeTokens {
    /// Their accessors, a bounded number.
    pub accessor_ids: Vec<String>,
}

impl Command for DeleteOneTimeTokens {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        let (mut accessor_ids, mut guards) = (Vec::new(), Vec::new());
        for accessor in &self.accessor_ids {
            let known = view.get::<OneTimeTokens>(accessor.as_str())?;
            if known.is_some_and(|known| known.expires_at.0 <= stamp.now) {
                guards.push(view.guard::<OneTimeTokens>(accessor.as_str())?);
                accessor_ids.push(accessor.clone());
            }
        }
        if accessor_ids.is_empty() {
            return Ok(Decision::Nothing(Reply::Count(0)));
        }
        let event = OneTimeTokensDeleted { accessor_ids };
        Ok(Decision::guarded(event, guards))
    }
}

/// One-time tokens that have run out are removed, a bounded number. The reply counts them.
#[derive(Clone, Debug)]
pub struct DeleteExpiredOneTimeTokens {
    /// Those that had run out then, Unix nanoseconds: no token is removed that expired after the
    /// look.
    pub expired_by: i64,
}

impl Command for DeleteExpiredOneTimeTokens {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let oldest = view.by_index::<OneTimeTokensByExpiration>(()).next();
        let oldest = oldest.transpose()?;
        if oldest.is_none_or(|oldest| oldest.expires_at.0 > self.expired_by) {
            return Ok(Decision::Nothing(Reply::Count(0)));
        }
        require_acl_support(view)?;
        let timestamp = self.expired_by;
        Ok(Decision::unguarded(OneTimeTokensExpired { timestamp }))
    }
}
