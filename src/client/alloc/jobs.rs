//! Hook work under way: in line for each task and for the allocation, and gone with its runner.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The work of one allocation's hooks.
#[derive(Default)]
pub(super) struct Jobs {
    /// It ends with this.
    set: JoinSet<()>,
    /// By task; the allocation's own under none.
    lines: BTreeMap<Option<String>, JobQueue>,
}

/// Work that is done one after the other.
#[derive(Default)]
struct JobQueue {
    /// Closes when the last job is over.
    last: Option<oneshot::Receiver<()>>,
    /// What a stop drops; each closes when its work is over (CL-20).
    dropped: Vec<oneshot::Sender<()>>,
}

impl Jobs {
    /// Does some work when what stands before it is over.
    pub(super) fn put(
        &mut self,
        task: Option<&str>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let line = self.lines.entry(task.map(str::to_owned)).or_default();
        let before = line.last.take();
        let (over, last) = oneshot::channel();
        line.last = Some(last);
        self.set.spawn(in_line(before, over, work));
    }

    /// As [`Jobs::put`], for work that [`Jobs::interrupt`] drops, or skips where it has not begun.
    pub(super) fn put_dropped(
        &mut self,
        task: Option<&str>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let (dropped, drops) = oneshot::channel();
        self.put(task, async move {
            tokio::select! {
                biased;
                _ = drops => {}
                () = work => {}
            }
        });
        if let Some(line) = self.lines.get_mut(&task.map(str::to_owned)) {
            line.dropped.push(dropped);
        }
    }

    /// Drops what may be dropped.
    pub(super) fn interrupt(&mut self, task: Option<&str>) {
        if let Some(line) = self.lines.get_mut(&task.map(str::to_owned)) {
            line.dropped.clear();
        }
    }

    /// Forgets what is over.
    pub(super) fn reap(&mut self) {
        while self.set.try_join_next().is_some() {}
        for line in self.lines.values_mut() {
            line.dropped.retain(|one| !one.is_closed());
        }
    }

    /// Drops everything, and waits until it is gone.
    pub(super) async fn end(&mut self) {
        self.set.shutdown().await;
        self.lines.clear();
    }

    /// Waits until no more than so much is under way.
    #[cfg(test)]
    pub(super) async fn down_to(&mut self, most: usize) {
        while self.set.len() > most {
            let _ = self.set.join_next().await;
        }
        self.reap();
    }

    /// How much is not known to be over: work, and what would drop it.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (usize, usize) {
        let dropped = self.lines.values().map(|line| line.dropped.len()).sum();
        (self.set.len(), dropped)
    }
}

async fn in_line(
    before: Option<oneshot::Receiver<()>>,
    over: oneshot::Sender<()>,
    work: impl Future<Output = ()>,
) {
    if let Some(before) = before {
        // An error is the news that it is over.
        let _ = before.await;
    }
    work.await;
    drop(over);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn cl_20_work_is_done_in_line_and_nothing_of_it_is_left() {
        let (mut jobs, done) = (Jobs::default(), Arc::new(Mutex::new(Vec::new())));
        let go = Arc::new(Notify::new());
        let say = |what: &'static str, waits: bool| {
            let (done, go) = (Arc::clone(&done), Arc::clone(&go));
            async move {
                if waits {
                    go.notified().await;
                }
                done.lock().push(what);
            }
        };
        jobs.put(Some("web"), say("first", true));
        jobs.put_dropped(Some("web"), say("skipped", false));
        jobs.put(Some("web"), say("last", false));
        jobs.put(Some("db"), say("beside", false));
        // What is dropped before it began does not let what stands behind it pass by the first.
        jobs.interrupt(Some("web"));
        jobs.down_to(3).await;
        assert_eq!(*done.lock(), ["beside"]);
        go.notify_one();
        jobs.down_to(0).await;
        assert_eq!(*done.lock(), ["beside", "first", "last"]);

        // Whatever ends by itself leaves nothing behind, however much of it there is.
        let mut most = 0;
        for _ in 0..100_000 {
            jobs.put_dropped(Some("web"), async {});
            jobs.down_to(8).await;
            most = most.max(jobs.counted().0).max(jobs.counted().1);
        }
        assert!(most <= 16, "{most} of a hundred thousand are kept");
        jobs.down_to(0).await;
        assert_eq!(jobs.counted(), (0, 0));

        jobs.put(Some("web"), std::future::pending());
        jobs.put(None, std::future::pending());
        jobs.end().await;
        assert_eq!(jobs.counted(), (0, 0));
    }
}
