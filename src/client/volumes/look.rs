//! Looks at what lies on storage that may be lost: a thread that touches that waits with it, maybe
//! for ever, and the agent has only so many. So at each path one thread looks at a time, and
//! callers meanwhile wait without one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::timeout;

use drover_base::keyed_locks::KeyedLocks;

/// How long storage is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The paths at which a thread looks.
static OUT: LazyLock<KeyedLocks<PathBuf>> = LazyLock::new(KeyedLocks::default);

/// Whether something is at a path of the host's.
///
/// # Errors
/// Nothing is there, or its storage does not answer.
pub(crate) async fn look(path: &Path) -> io::Result<()> {
    with(path, PATIENCE, |path| path.metadata().map(drop)).await
}

async fn with(
    path: &Path,
    patience: Duration,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let looked = async {
        let path = path.to_owned();
        let turn = OUT.lock(path.clone()).await;
        let looked = tokio::task::spawn_blocking(move || {
            // Until this thread is back, whether or not its caller waits for it.
            let _turn = turn;
            work(&path)
        });
        looked
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    };
    let late = |_| {
        let text = format!("its storage did not answer within {patience:?}");
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    timeout(patience, looked).await.map_err(late)?
}

/// Storage that does not answer, until this is dropped.
#[cfg(test)]
pub(crate) async fn lost(path: &Path) -> drover_base::keyed_locks::KeyGuard<'static, PathBuf> {
    OUT.lock(path.to_owned()).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_path_that_hangs_takes_one_thread_however_often_it_is_looked_at() {
        let path = Path::new("/of/a/lost/server");
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        let threads = Arc::new(AtomicUsize::new(0));
        let soon = Duration::from_millis(20);
        for _ in 0..5 {
            let (hangs, threads) = (Arc::clone(&hangs), Arc::clone(&threads));
            let looked = with(path, soon, move |_| {
                threads.fetch_add(1, Ordering::Relaxed);
                // An end of the test ends it too.
                let _ = hangs.lock().map(|hangs| hangs.recv());
                Ok(())
            });
            assert_eq!(looked.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(threads.load(Ordering::Relaxed), 1);
        look(Path::new("/")).await.unwrap();
        drop(release);
        with(path, PATIENCE, |_| Ok(())).await.unwrap();
        let none = look(Path::new("/none/there")).await.unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
