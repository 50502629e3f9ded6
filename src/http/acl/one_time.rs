//! One-time tokens: what a command line gives to a browser in the place of a secret.

use drover_events::model::{AclToken, OneTimeToken};
use drover_projections::query::acl::one_time_token_by_hash;
use drover_projections::tables::one_time_tokens::{OneTimeTokens, secret_hash};

use super::{enabled, tokens};
use crate::commands::acl::{ExchangeOneTimeToken, IssueOneTimeToken};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::{Write, denied};
use crate::http::list::storage;
use crate::http::new_id;
use crate::table_reads::glance;

drover_events::wire! {
    /// A one-time token that was issued.
    struct Issued {
        one_time_token: OneTimeToken = "OneTimeToken",
        index: u64 = "Index",
    }

    /// What a one-time token is exchanged by.
    struct ExchangeBody {
        secret: String = "OneTimeSecretID",
    }

    /// The token it stood for.
    struct Exchanged {
        token: AclToken = "Token",
        index: u64 = "Index",
    }
}

/// `PUT /v1/acl/token/onetime`: one for the token in use.
pub(in crate::http) async fn issue(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let identity = &write.request.identity;
    let own = identity.token.as_deref().ok_or_else(denied)?;
    let accessor_id = own.accessor_id.clone();
    let secret = new_id();
    let command = IssueOneTimeToken {
        accessor_id: accessor_id.clone(),
        secret_hash: secret_hash(&secret),
    };
    let done = write.submit(command).await?;
    let view = write.api.projections.view();
    let found = glance(|| view.get::<OneTimeTokens>(accessor_id.as_str()));
    let mut one_time_token = found.map_err(storage)?.ok_or_else(denied)?;
    one_time_token.one_time_secret_id = secret;
    let issued = Issued {
        one_time_token,
        index: done.index,
    };
    Ok(Answer::json(&issued)?.written(done.index))
}

/// `PUT /v1/acl/token/onetime/exchange`: requires nothing of the caller but the one-time secret.
pub(in crate::http) async fn exchange(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let body: ExchangeBody = write.json().await?;
    let hash = secret_hash(&body.secret);
    let view = write.api.projections.view();
    let found = glance(|| one_time_token_by_hash(&view, &hash));
    let accessor = found.map_err(storage)?.ok_or_else(denied)?;
    drop(view);
    let command = ExchangeOneTimeToken { secret_hash: hash };
    let done = write.submit(command).await?;
    let exchanged = Exchanged {
        token: tokens::stored(&write, &accessor.accessor_id)?,
        index: done.index,
    };
    Ok(Answer::json(&exchanged)?.written(done.index))
}
