//! The list of jobs that is kept rendered.

use drover_events::model::Job;
use drover_projections::key::KeyBuf;
use drover_projections::lists::List;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::job_summaries::JobSummaries;
use drover_projections::tables::jobs::Jobs;
use drover_projections::view::View;
use drover_projections::{Key, Prefix, StorageError, Table};

use super::list::stub;
use crate::http::ready::{self, Ready};

/// `/v1/jobs`.
pub(super) struct JobList;

impl List for JobList {
    type Table = Jobs;
    const BESIDE: &'static [u16] = &[JobSummaries::ID];

    fn order(row: &Job) -> KeyBuf {
        let token = PageToken::NamespaceId(row.namespace.clone(), row.id.clone());
        Self::place(&row.namespace, &token)
    }

    fn render(view: &View, row: &Job, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let summary = view.get::<JobSummaries>((row.namespace.as_str(), row.id.as_str()))?;
        ready::write(out, &stub(row.clone(), summary, false))
    }
}

impl Ready for JobList {
    const TOKEN: TokenKind = TokenKind::NamespaceId;
    const SPACED: bool = true;

    fn place(_namespace: &str, token: &PageToken) -> KeyBuf {
        match token {
            PageToken::NamespaceId(namespace, id) => {
                Prefix::new().str(namespace).str(id).as_bytes().into()
            }
            _ => KeyBuf::new(),
        }
    }

    fn token(place: &[u8]) -> Option<PageToken> {
        let (namespace, id) = <(String, String)>::from_bytes(place).ok()?;
        Some(PageToken::NamespaceId(namespace, id))
    }
}
