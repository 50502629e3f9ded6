//! Another database takes the place of the one in use: readers, waiters and the writer go on.

use crate::store::engine_test::{Op, Things};
use crate::store::engine_test::{Step, apply, dump, many_ops, numbered, open, step, thing, with};
use crate::{Former, Interest, Unswitched, Writer, unreadable};

fn filled(dir: &std::path::Path, name: &str, steps: &[Step]) -> Writer {
    let (_, mut writer) = open(&dir.join(name));
    apply(&mut writer, steps, &[64]);
    writer
}

#[test]
fn readers_of_the_old_database_finish_there_and_the_next_read_is_of_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let steps = numbered(many_ops(600));
    let mut writer = filled(dir.path(), "old", &steps);
    let new = filled(dir.path(), "new", &steps);
    let projections = std::sync::Arc::clone(writer.projections());
    let before = projections.view();
    let waiter = projections.watch().register(&[Interest::Progress]);
    let made = unreadable::made();
    let Ok(former) = writer.switch(new, false, &mut || Ok(())) else {
        panic!("they are equal");
    };
    assert!(projections.path().ends_with("new"));
    assert!(unreadable::made() > made, "what was said of rows is over");
    assert!(former.is_read(), "somebody reads there");
    assert_eq!(dump(&before), dump(&projections.view()));
    assert!(!waiter.is_woken(), "nothing changed");
    drop(before);
    assert!(!former.is_read());
    drop(former);
    // The writer continues in the new one, and waiters are woken.
    let id = "00000000-0000-4000-8000-000000000009";
    apply(&mut writer, &[step(601, vec![Op::Put(thing(id, 9))])], &[1]);
    assert!(waiter.is_woken());
    assert_eq!(
        projections.view().get::<Things>(id).unwrap().unwrap().size,
        9
    );
    projections.verify().unwrap();
    drop((projections, writer));
    assert_eq!(open(&dir.path().join("old")).0.applied_index(), 600);
    assert_eq!(
        open(&dir.path().join("new")).0.path(),
        dir.path().join("new")
    );
}

#[test]
fn another_index_or_another_state_is_not_taken_unless_forced() {
    let dir = tempfile::tempdir().unwrap();
    let steps = numbered(many_ops(90));
    let mut writer = filled(dir.path(), "old", &steps);
    let short = filled(dir.path(), "short", &steps[..80]);
    let mut called = 0;
    let mut commit = || {
        called += 1;
        Ok(())
    };
    let Err(Unswitched::Elsewhere(mut new)) = writer.switch(short, true, &mut commit) else {
        panic!("it stands elsewhere");
    };
    let mut other = steps[80..].to_vec();
    other[9].ops = vec![Op::Put(thing("00000000-0000-4000-8000-00000000000b", 1))];
    apply(&mut new, &other, &[3]);
    let Err(Unswitched::Different(new, tables)) = writer.switch(new, false, &mut commit) else {
        panic!("it is different");
    };
    assert!(tables.contains(&"things"), "{tables:?}");
    let waiter = writer
        .projections()
        .watch()
        .register(&[Interest::table::<Things>()]);
    assert!(writer.switch(new, true, &mut commit).is_ok());
    assert_eq!(called, 1);
    assert!(waiter.is_woken(), "the state is another");
}

/// The flush of the former database is on its way: the writer of the new one waits for none, and
/// requests its own.
#[test]
fn a_flush_of_the_former_database_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let steps = numbered(many_ops(90));
    let path = dir.path().join("old");
    let (_, mut writer) = with(&path, |options| options.flush_every = 10);
    let mut new = filled(dir.path(), "new", &steps);
    let gate = writer.flush_gate();
    // Dropping it waits for the flush, so it is declared before what holds the flush: where an
    // assertion fails, that is let go first.
    let former;
    let held = gate.lock();
    apply(&mut writer, &steps, &[8]);
    assert_eq!((writer.flushes(), new.flushes()), (1, 0));
    new.flush().unwrap();
    former = writer.switch(new, false, &mut || Ok(())).ok();
    let is_read = || former.as_ref().is_some_and(Former::is_read);
    assert!(is_read(), "its flush is on its way");
    let id = "00000000-0000-4000-8000-000000000009";
    for index in 91..=110 {
        apply(
            &mut writer,
            &[step(index, vec![Op::Put(thing(id, index))])],
            &[1],
        );
    }
    assert_eq!(writer.flushes(), 2, "one of the new database");
    drop(held);
    for _ in 0..6_000 {
        if !is_read() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    assert!(former.is_some() && !is_read());
}
