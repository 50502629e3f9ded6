//! Changes of namespaces.

use drover_events::model::Namespace;

use crate::commands::namespace::{DeleteNamespaces, UpsertNamespaces};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::Write;

/// `PUT /v1/namespace` and `PUT /v1/namespace/:name`.
pub(in crate::http) async fn upsert(write: Write) -> Result<Answer, Refusal> {
    let mut namespace: Namespace = write.json().await?;
    let named = write.request.segment(2)?;
    if namespace.name.is_empty() {
        namespace.name.clone_from(&named);
    }
    if !named.is_empty() && named != namespace.name {
        return Err(Refusal::bad_request(
            "Namespace name does not match request path",
        ));
    }
    let done = write
        .submit(UpsertNamespaces {
            namespaces: vec![namespace],
        })
        .await?;
    Ok(Answer::nothing().written(done.index))
}

/// `DELETE /v1/namespace/:name`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, Refusal> {
    let names = vec![write.request.segment(2)?];
    let done = write.submit(DeleteNamespaces { names }).await?;
    Ok(Answer::nothing().written(done.index))
}
