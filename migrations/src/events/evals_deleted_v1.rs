//! `EvalsDeleted`, version 1: the filter had the meaning of the only language there was.

use drover_events::eval::EvalsDeleted;
use drover_events::impl_json_schema;
use serde::{Deserialize, Serialize};

/// The frozen shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct EvalsDeletedV1 {
    /// By id. Empty when there is a filter.
    #[serde(rename = "EvalIDs")]
    pub eval_ids: Vec<String>,
    /// Allocations removed with them, by garbage collection.
    #[serde(rename = "AllocIDs")]
    pub alloc_ids: Vec<String>,
    /// A filter expression. Empty when there are ids.
    pub filter: String,
    /// The first evaluation of the page; empty: from the start.
    pub next_token: String,
    /// How many evaluations a page has at most.
    pub per_page: u32,
    /// Whether an operator requested it.
    pub user_initiated: bool,
}

impl_json_schema! {
    EvalsDeletedV1: "Evaluations, and allocations with them, were removed by ids or by rule." {
        "EvalIDs": Vec<String> = "By id. Empty when there is a filter.",
        "AllocIDs": Vec<String> = "Allocations removed with them, by garbage collection.",
        "Filter": String = "A filter expression. Empty when there are ids.",
        "NextToken": String = "The first evaluation of the page; empty: from the start.",
        "PerPage": u32 = "How many evaluations a page has at most.",
        "UserInitiated": bool = "Whether an operator requested it.",
    }
}

impl EvalsDeletedV1 {
    /// One step up: the filter, if there is one, gets the version it always had.
    pub(crate) fn upcast(self) -> EvalsDeleted {
        EvalsDeleted {
            filter_version: u32::from(!self.filter.is_empty()),
            eval_ids: self.eval_ids,
            alloc_ids: self.alloc_ids,
            filter: self.filter,
            page_token: self.next_token,
            per_page: self.per_page,
            user_initiated: self.user_initiated,
            ..EvalsDeleted::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_gets_the_language_it_was_written_in() {
        let old = EvalsDeletedV1 {
            filter: "Status == \"complete\"".into(),
            next_token: "7.abc".into(),
            per_page: 1000,
            user_initiated: true,
            ..EvalsDeletedV1::default()
        };
        let new = old.upcast();
        assert_eq!(new.filter_version, 1);
        assert_eq!(new.page_token, "7.abc");
        assert!(new.user_initiated && new.eval_ids.is_empty());
    }

    #[test]
    fn ids_need_no_language() {
        let old = EvalsDeletedV1 {
            eval_ids: vec!["a".into()],
            ..EvalsDeletedV1::default()
        };
        assert_eq!(old.upcast().filter_version, 0);
    }
}
