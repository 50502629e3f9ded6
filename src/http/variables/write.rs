//! Changes of variables: encrypted here, decided in apply.

use std::time::Duration;

use drover_events::model::{VariableDecrypted, VariableEncrypted};
use drover_events::variable::VarOp;
use drover_projections::{Reply, VarOutcome};
use zeroize::Zeroizing;

use crate::acl::VariableCapability as Cap;
use crate::commands::variable::ApplyVariable;
use crate::error::Refusal;
use crate::http::absent;
use crate::http::answer::Answer;
use crate::http::gate::{Late, Write};
use crate::http::requests;
use crate::http::variables::path;
use crate::keyring::KeyringError;

/// The largest sum of a variable's keys and values, bytes.
const LARGEST: usize = 64 << 10;
/// How long a write waits for the cluster's first key.
const FIRST_KEY: Duration = Duration::from_secs(5);
const LONGEST_PATH: usize = 128;

/// `PUT /v1/var/:path`.
pub(in crate::http) async fn put(late: Late) -> Result<Answer, Refusal> {
    let lock = ["lock-acquire", "lock-renew", "lock-release"];
    if lock
        .iter()
        .any(|name| late.request.query.get(name).is_some())
    {
        let advice = "cas=INDEX refuses what has changed since";
        return Err(absent::unsupported("locks of variables are", advice));
    }
    // The body itself lies in a buffer of the connection, and is read as any other: what can be
    // cleared is what was read.
    let mut var: Zeroizing<VariableDecrypted> = late.json().await.map(Zeroizing::new)?;
    var.path = path(&late.request)?;
    if var.namespace.is_empty() {
        late.request.namespace().clone_into(&mut var.namespace);
    }
    let may = late
        .acl()
        .variable_allows(&var.namespace, &var.path, Cap::Write);
    let write = late.authorize(may)?;
    check(&var)?;
    let cas = cas(&write)?;
    var.modify_index = cas.unwrap_or_default();
    let ring = &write.api.keyring;
    // A new cluster has a key a moment after it has a leader (KR-03); without one in time the
    // refusal is the keyring's own.
    let _ = tokio::time::timeout(FIRST_KEY, ring.wait_active()).await;
    let sealed = ring.encrypt(&var).map_err(keyring)?;
    let op = if cas.is_some() {
        VarOp::Cas
    } else {
        VarOp::Set
    };
    let done = write
        .submit(ApplyVariable {
            op,
            var: sealed,
            quota: write.api.settings.variables_quota,
        })
        .await?;
    let outcome = outcome(done.reply)?;
    match outcome {
        VarOutcome::Written(meta) => {
            var.create_index = meta.create_index;
            var.create_time = meta.create_time;
            var.modify_index = meta.modify_index;
            var.modify_time = meta.modify_time;
            Ok(Answer::secret(&*var)?.written(done.index))
        }
        VarOutcome::Conflict(there) => conflict(&write, &there).await,
        VarOutcome::Deleted(_) => Err(Refusal::internal("a write answered as a deletion")),
    }
}

/// `DELETE /v1/var/:path`.
pub(in crate::http) async fn delete(late: Late) -> Result<Answer, Refusal> {
    let path = path(&late.request)?;
    let namespace = late.request.namespace();
    let may = late.acl().variable_allows(namespace, &path, Cap::Destroy);
    let write = late.authorize(may)?;
    let cas = cas(&write)?;
    let var = VariableEncrypted {
        namespace: write.request.namespace().to_owned(),
        path,
        modify_index: cas.unwrap_or_default(),
        ..VariableEncrypted::default()
    };
    let op = if cas.is_some() {
        VarOp::DeleteCas
    } else {
        VarOp::Delete
    };
    let done = write.submit(ApplyVariable { op, var, quota: 0 }).await?;
    match outcome(done.reply)? {
        VarOutcome::Conflict(there) => conflict(&write, &there).await,
        _ => Ok(Answer::nothing().status(204).written(done.index)),
    }
}

/// What is there instead, with 409 (VAR-03). A caller that loses a check-and-set reads a secret by
/// it: the request log says so before anything is decrypted.
async fn conflict(write: &Write, there: &VariableEncrypted) -> Result<Answer, Refusal> {
    if there.modify_index == 0 {
        let absent = VariableDecrypted {
            namespace: there.namespace.clone(),
            path: there.path.clone(),
            ..VariableDecrypted::default()
        };
        return Ok(Answer::json(&absent)?.status(409).written(0));
    }
    let acl = &write.request.identity.acl;
    if !acl.variable_allows(&there.namespace, &there.path, Cap::Read) {
        // That it is another one is all that its loser may learn.
        let hidden = VariableDecrypted {
            namespace: there.namespace.clone(),
            path: there.path.clone(),
            create_index: there.create_index,
            create_time: there.create_time,
            modify_index: there.modify_index,
            modify_time: there.modify_time,
            ..VariableDecrypted::default()
        };
        let answer = Answer::json(&hidden)?;
        return Ok(answer.status(409).written(there.modify_index));
    }
    let ticket = requests::shown(&write.api, &write.request).await?;
    let clear = write.api.keyring.decrypt(there).map_err(keyring);
    let answer = clear.and_then(|clear| {
        let answer = Answer::secret(&*clear)?;
        Ok(answer.status(409).written(clear.modify_index))
    });
    let never_denied = || requests::denial(&write.request);
    requests::answered(&write.api.requests, Some(ticket), never_denied, answer).await
}

fn outcome(reply: Reply) -> Result<VarOutcome, Refusal> {
    match reply {
        Reply::Variable(outcome) => Ok(*outcome),
        other => Err(Refusal::internal(format!(
            "a variable was answered with {other:?}"
        ))),
    }
}

/// The index a check-and-set names.
fn cas(write: &Write) -> Result<Option<u64>, Refusal> {
    match write.request.query.text("cas") {
        "" => Ok(None),
        raw => raw.parse().map(Some).map_err(|_| {
            Refusal::bad_request(format!(
                "can not parse cas: strconv.ParseUint: parsing \"{raw}\": invalid syntax"
            ))
        }),
    }
}

/// Nomad's rules for what a variable may be.
fn check(var: &VariableDecrypted) -> Result<(), Refusal> {
    let bad = |text: &str| Err(Refusal::bad_request(text));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '~' | '/');
    if var.path.len() > LONGEST_PATH || !var.path.chars().all(plain) {
        return Err(Refusal::bad_request(format!(
            "invalid path \"{}\"",
            var.path
        )));
    }
    reserved(&var.path)?;
    if var.items.is_nil() {
        return bad("variable missing required Items object");
    }
    if var.items.is_empty() {
        return bad("empty variables are invalid");
    }
    let size: usize = var.items.iter().map(|(k, v)| k.len() + v.len()).sum();
    if size > LARGEST {
        return bad("variables are limited to 64KiB in total size");
    }
    if var.namespace == "*" {
        return bad("can not target wildcard (\"*\")namespace");
    }
    if var.lock.is_some() {
        return bad("variable should not contain lock definition");
    }
    Ok(())
}

/// What lies under `nomad/` has a meaning of its own.
fn reserved(path: &str) -> Result<(), Refusal> {
    let mut parts = path.split('/');
    if parts.next() != Some("nomad") {
        return Ok(());
    }
    let text = match parts.next() {
        None | Some("") => {
            "\"nomad\" is a reserved top-level directory path, but you may write variables to \
             \"nomad/jobs\", \"nomad/job-templates\", \"nomad/sentinel\", or below"
        }
        Some("jobs" | "job-templates" | "sentinel") => return Ok(()),
        Some(_) => {
            "only paths at \"nomad/jobs\" or \"nomad/job-templates\" and below are valid paths \
             under the top-level \"nomad\" directory"
        }
    };
    Err(Refusal::bad_request(text))
}

fn keyring(error: KeyringError) -> Refusal {
    Refusal::internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use drover_events::gojson::Map;

    use super::*;

    #[test]
    fn what_lies_under_nomad_is_written_where_it_means_something_and_nowhere_else() {
        for (path, wanted) in [
            ("app/db", ""),
            ("nomads/web", ""),
            ("nomad/jobs/web", ""),
            ("nomad", "is a reserved top-level directory path"),
            ("nomad/web", "are valid paths under the top-level"),
        ] {
            let var = VariableDecrypted {
                path: path.to_owned(),
                items: Map::from([("key", "value".to_owned())]),
                ..VariableDecrypted::default()
            };
            let refused = check(&var).err().map(|refusal| refusal.message);
            let text = refused.unwrap_or_default();
            let is_so = text.contains(wanted) && text.is_empty() == wanted.is_empty();
            assert!(is_so, "{path}: {text}");
        }
    }
}
