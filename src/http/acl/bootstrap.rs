//! The first management token.

use super::{Fresh, enabled, tokens};
use crate::commands::acl::BootstrapAcl;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::Write;
use crate::http::{new_id, rows};

drover_events::wire! {
    /// The secret that the first token is to have.
    struct BootstrapBody {
        secret: String = "BootstrapSecret",
    }
}

/// `PUT /v1/acl/bootstrap`: requires nothing of the caller, and does it once.
pub(in crate::http) async fn put(write: Write) -> Result<Answer, Refusal> {
    enabled(&write.api)?;
    let body: BootstrapBody = write.json_or_default().await.map_err(|mut error| {
        error.message = format!("failed to decode request body: {}", error.message);
        error
    })?;
    let secret = match body.secret.as_str() {
        "" => new_id(),
        given if rows::is_uuid(given) => given.to_owned(),
        _ => return Err(Refusal::bad_request("invalid acl token")),
    };
    let fresh = Fresh::with(&write.api, new_id(), secret).await?;
    let reset_index = write.api.server.acl_bootstrap_reset();
    let command = BootstrapAcl {
        accessor_id: fresh.accessor.clone(),
        secret: fresh.sealed,
        reset_index,
    };
    let done = write.submit(command).await?;
    let mut token = tokens::stored(&write, &fresh.accessor)?;
    token.secret_id = fresh.secret;
    Ok(Answer::json(&token)?.written(done.index))
}
