//! Counting summaries again.

use drover_events::job::JobSummariesReconciled;
use drover_projections::View;

use super::super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// How many jobs one event counts; its apply stays short.
pub(super) const PAGE: u32 = 128;

/// One page of jobs whose summaries are recounted. Its reply is `Reply::Page`.
#[derive(Clone, Debug, Default)]
pub struct ReconcileSummaries {
    /// `<namespace>.<id>` of the first job of the page; empty: from the start.
    pub page_token: String,
}

impl Command for ReconcileSummaries {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(JobSummariesReconciled {
            page_token: self.page_token.clone(),
            per_page: PAGE,
        }))
    }
}
