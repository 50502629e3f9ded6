//! The hook of an allocation's services: reported again when a task runs again, and gone before the
//! tasks are requested to end. What is offered, and when, follows from the states of the tasks
//! ([`crate::alloc::offers`]).

use std::sync::Arc;

use drover_events::model::Allocation;
use serde_json::Value;

use super::{AllocAnswer, AllocGiven, AllocHook, Hooked};
use crate::service::book::Book;

/// It has copies of what it needs, for the allocation may change while it works (CL-22).
pub(super) struct GroupServices {
    alloc: String,
    book: Arc<Book>,
}

impl GroupServices {
    pub(super) fn of(book: &Arc<Book>, alloc: &Allocation) -> Self {
        Self {
            alloc: alloc.id.clone(),
            book: Arc::clone(book),
        }
    }
}

impl AllocHook for GroupServices {
    fn name(&self) -> &'static str {
        "group_services"
    }

    fn task_restarted<'a>(&'a self, _: &'a AllocGiven, _: &'a str) -> Hooked<'a, ()> {
        self.book.report_again(&self.alloc);
        super::well()
    }

    fn pre_kill<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        self.book.withdraw(&self.alloc);
        super::well()
    }

    fn postrun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        self.book.withdraw(&self.alloc);
        super::nothing()
    }

    fn destroy<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        self.book.forget(&self.alloc);
        super::well()
    }
}
