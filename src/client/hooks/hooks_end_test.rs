//! Hooks that hold up their thread, and hooks that panic, beside real runners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::alloc::{AllocAnswer, AllocGiven, AllocHook, Hooked};
use super::hooks_test::{Reported, of_web, stopped};
use super::testing::Script;
use crate::alloc::runner_test::{alloc, factory, run, until};
use crate::drivers::ExitResult;
use crate::hooks::task;
use crate::hooks::task::{Prestart, TaskAnswer, TaskGiven, TaskHook};

/// Holds up the thread that it is called on, answers, and notes what it is given at the end.
#[derive(Clone)]
struct Busy {
    began: Arc<AtomicBool>,
    go: Arc<(Mutex<bool>, Condvar)>,
    is_repeatable: bool,
    at_end: Arc<Mutex<Option<Value>>>,
}

impl Busy {
    const KEPT: &str = "what it answered";

    fn answer(&self) -> Value {
        self.began.store(true, Ordering::Release);
        let (go, changed) = &*self.go;
        // What the thread was to do next is done by another one.
        tokio::task::block_in_place(|| changed.wait_while(&mut go.lock(), |go| !*go));
        Self::KEPT.into()
    }

    fn end(&self, kept: &Value) {
        *self.at_end.lock() = Some(kept.clone());
    }
}

impl AllocHook for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn prerun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        async { Ok(AllocAnswer::keeping(self.answer())) }.boxed()
    }

    fn postrun<'a>(&'a self, _: &'a AllocGiven, kept: &'a Value) -> Hooked<'a, AllocAnswer> {
        self.end(kept);
        async { Ok(AllocAnswer::done()) }.boxed()
    }
}

impl TaskHook for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn prestart<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        let answer = async {
            Ok(TaskAnswer {
                kept: self.answer(),
                ..TaskAnswer::done()
            })
        };
        answer.boxed()
    }

    fn stop<'a>(&'a self, _: &'a TaskGiven, kept: &'a Value) -> task::Hooked<'a> {
        self.end(kept);
        async { Ok(()) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cl_23_what_a_hook_answers_while_a_stop_waits_is_what_it_is_given_at_the_end() {
    for case in 0..8 {
        let (of_task, is_repeatable, another) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let tmp = tempfile::tempdir().unwrap();
        let mut factory = factory(tmp.path());
        let busy = Busy {
            began: Arc::default(),
            go: Arc::default(),
            is_repeatable,
            at_end: Arc::default(),
        };
        let hook = busy.clone();
        match of_task {
            true => factory
                .task_hooks
                .0
                .push(Arc::new(move |_, _| Some(Box::new(hook.clone())))),
            false => factory
                .alloc_hooks
                .0
                .push(Arc::new(move |_, _| Some(Box::new(hook.clone())))),
        }
        // With one behind it, it is dropped on its way to the journal.
        let script = another.then(|| Script::install(tmp.path(), &mut factory));
        let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
        let reported = Reported::default();
        let runner = run(&factory, &given, &reported);
        until("it works", || busy.began.load(Ordering::Acquire)).await;
        runner.update(stopped(&given));
        until("its end is reported", || {
            of_web(&reported).1.contains(&"Killed".to_owned())
        })
        .await;
        assert_eq!(*busy.at_end.lock(), None);
        *busy.go.0.lock() = true;
        busy.go.1.notify_all();
        runner.done().wait_for(|done| *done).await.unwrap();
        assert_eq!(*busy.at_end.lock(), Some(Busy::KEPT.into()), "case {case}");
        drop(script);
    }
}

/// Panics in one of its calls.
#[derive(Clone, Copy)]
struct Panics(&'static str);

impl Panics {
    fn called(self, call: &str) {
        assert_ne!(self.0, call, "the panic that was requested");
    }
}

impl AllocHook for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn prerun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        self.called("prerun");
        async { Ok(AllocAnswer::done()) }.boxed()
    }

    fn pre_kill<'a>(&'a self, _: &'a AllocGiven) -> Hooked<'a, ()> {
        self.called("pre_kill");
        async { Ok(()) }.boxed()
    }

    fn postrun<'a>(&'a self, _: &'a AllocGiven, _: &'a Value) -> Hooked<'a, AllocAnswer> {
        self.called("postrun");
        async { Ok(AllocAnswer::done()) }.boxed()
    }
}

impl TaskHook for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn prestart<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> Prestart<'a> {
        self.called("prestart");
        async { Ok(TaskAnswer::done()) }.boxed()
    }

    fn exited<'a>(&'a self, _: &'a TaskGiven, _: &'a Value, _: &'a ExitResult) -> task::Hooked<'a> {
        self.called("exited");
        async { Ok(()) }.boxed()
    }

    fn stop<'a>(&'a self, _: &'a TaskGiven, _: &'a Value) -> task::Hooked<'a> {
        self.called("stop");
        async { Ok(()) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_23_a_hook_that_panics_keeps_no_allocation_from_its_end() {
    for call in [
        "prerun", "prestart", "exited", "stop", "pre_kill", "postrun",
    ] {
        let tmp = tempfile::tempdir().unwrap();
        let mut factory = factory(tmp.path());
        let hook = Panics(call);
        let of_alloc = move |_: &_, _: &_| Some(Box::new(hook) as Box<dyn AllocHook>);
        factory.alloc_hooks.0.push(Arc::new(of_alloc));
        let of_task = move |_: &_, _: &_| Some(Box::new(hook) as Box<dyn TaskHook>);
        factory.task_hooks.0.push(Arc::new(of_task));
        let given = alloc("service", "mock_driver", json!({"run_for": "1h"}));
        let reported = Reported::default();
        let runner = run(&factory, &given, &reported);
        let begins = !call.starts_with("pre") || call == "pre_kill";
        let wanted = if begins { "running" } else { "dead" };
        until(call, || of_web(&reported).0 == wanted).await;
        runner.update(stopped(&given));
        let ended = async { runner.done().wait_for(|done| *done).await.map(|_| ()) };
        let ended = tokio::time::timeout(drover_testkit::LONG, ended).await;
        ended.unwrap_or_else(|_| panic!("{call} keeps it")).unwrap();
        let failed = reported.lock().as_ref().unwrap().client_status == "failed";
        assert_eq!(failed, !begins, "{call}");
    }
}
