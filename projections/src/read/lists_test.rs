//! Lists that are too large to be kept, and lists that are being rendered.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::read::lists::{List, Listed};
use crate::store::engine_test::{Op, TABLES, Thing, Things, apply, step, thing};
use crate::{DatabaseOptions, Projections, StorageError, View, Waiter};

fn place(row: &Thing) -> crate::engine::key::KeyBuf {
    crate::Key::to_bytes(&crate::Id::new(row.id.as_str()))
}

/// Counts what it renders: a hundred bytes a row.
struct Counted;
static RENDERED: AtomicUsize = AtomicUsize::new(0);

impl List for Counted {
    type Table = Things;

    fn order(row: &Thing) -> crate::engine::key::KeyBuf {
        place(row)
    }

    fn render(_: &View, _: &Thing, out: &mut Vec<u8>) -> Result<(), StorageError> {
        RENDERED.fetch_add(1, Ordering::SeqCst);
        out.extend_from_slice(&[b'x'; 100]);
        Ok(())
    }
}

fn puts(rows: std::ops::Range<u64>) -> Vec<Op> {
    rows.map(|id| Op::Put(thing(&id.to_string(), id))).collect()
}

#[test]
fn a_list_that_is_too_large_is_not_rendered_for_each_who_asks() {
    let rendered = || RENDERED.swap(0, Ordering::SeqCst);
    for (again, renders) in [(3_600, 0), (0, 11)] {
        let dir = tempfile::tempdir().unwrap();
        let options = DatabaseOptions {
            list_bytes: 1_000,
            list_again: again,
            ..DatabaseOptions::dev()
        };
        let (projections, mut writer) =
            Projections::open_with(dir.path(), options, &TABLES).unwrap();
        apply(&mut writer, &[step(1, puts(0..100))], &[1]);
        let list_now = || projections.list::<Counted>().unwrap();
        assert!(matches!(list_now(), Listed::TooLarge));
        assert_eq!(rendered(), 11, "until the bound is passed");
        apply(&mut writer, &[step(2, puts(0..1))], &[1]);
        for _ in 0..3 {
            assert!(matches!(list_now(), Listed::TooLarge));
            assert!(projections.list_if_ready::<Counted>().is_none());
            assert_eq!(rendered(), renders, "looked at again after {again} indexes");
        }
        let gone = (5..100).map(|id: u64| Op::Delete(id.to_string()));
        apply(&mut writer, &[step(3, gone.collect())], &[1]);
        match list_now() {
            Listed::Ready(list) => assert_eq!((again, list.rows()), (0, 5)),
            other => assert!(again > 0, "{other:?}"),
        }
        rendered();
    }
}

/// Renders when it may.
struct Slow;
static STEPS: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = Mutex::new(None);

impl List for Slow {
    type Table = Things;

    fn order(row: &Thing) -> crate::engine::key::KeyBuf {
        place(row)
    }

    fn render(_: &View, _: &Thing, _: &mut Vec<u8>) -> Result<(), StorageError> {
        if let Some((begun, go_on)) = STEPS.lock().take() {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        Ok(())
    }
}

/// Sleeps until it is woken.
fn wait_for(waiter: Waiter) {
    struct Here(std::thread::Thread);
    impl Wake for Here {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Here(std::thread::current())));
    let mut waiter = std::pin::pin!(waiter);
    for _ in 0..10 {
        let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            return;
        }
        std::thread::park_timeout(Duration::from_secs(10));
    }
    panic!("nobody wakes it");
}

#[test]
fn nobody_is_held_up_by_a_list_that_another_renders() {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) =
        Projections::open_with(dir.path(), DatabaseOptions::dev(), &TABLES).unwrap();
    apply(&mut writer, &[step(1, puts(0..3))], &[1]);
    let ((begun, is_begun), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    *STEPS.lock() = Some((begun, goes_on));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(
                projections.list::<Slow>().unwrap(),
                Listed::Ready(_)
            ));
            done.store(true, Ordering::SeqCst);
        });
        is_begun.recv().unwrap();
        let Listed::Busy(waiter) = projections.list::<Slow>().unwrap() else {
            panic!("it is being rendered");
        };
        assert!(!waiter.is_woken() && !done.load(Ordering::SeqCst));
        go_on.send(()).unwrap();
        wait_for(waiter);
        match projections.list::<Slow>().unwrap() {
            Listed::Ready(list) => assert_eq!(list.rows(), 3),
            other => panic!("{other:?}"),
        }
        let ready = projections.list_if_ready::<Slow>().unwrap();
        assert_eq!((ready.rows(), ready.index()), (3, 1));
        apply(&mut writer, &[step(2, puts(3..4))], &[1]);
        assert!(projections.list_if_ready::<Slow>().is_none());
    });
}
