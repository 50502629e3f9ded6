//! Events about evaluations.

use crate::model::Evaluation;
use crate::plan::DecisionInputs;
use crate::wire;

wire! {
    /// Evaluations were created or changed.
    pub struct EvalsUpserted {
        evals: Vec<Evaluation> = "Evals",
        /// From what the scheduler decided, when this ends an evaluation.
        decision: Option<DecisionInputs> = "Decision",
    }

    /// Evaluations were removed: those named, or one page of those a filter matches (EVAL-02).
    ///
    /// Which rows a page holds is decided in apply, identically on every server (EV-12).
    pub struct EvalsDeleted {
        /// By id. Empty when there is a filter.
        eval_ids: Vec<String> = "EvalIDs",
        /// Allocations removed with them, by garbage collection.
        alloc_ids: Vec<String> = "AllocIDs",
        /// A filter expression. Empty when there are ids.
        filter: String = "Filter",
        /// The version of the filter language that gives the expression its meaning.
        filter_version: u32 = "FilterVersion",
        /// The first evaluation of the page; empty: from the start.
        page_token: String = "PageToken" (Public),
        /// How many evaluations a page has at most.
        per_page: u32 = "PerPage",
        /// Whether an operator requested it, which needs a paused broker (EVAL-09).
        user_initiated: bool = "UserInitiated",
        /// How many rows are looked at for a page, so that its apply is short; 0: 4,096.
        row_limit: u32 = "RowLimit",
    }
}
