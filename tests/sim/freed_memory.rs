//! What is encrypted leaves nothing readable in memory that was given back.

#![expect(unsafe_code, reason = "only an allocator sees what is given back")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drover::keyring::{Keyring, secret_json};
use drover_events::model::VariableDecrypted;

/// The system's allocator, which looks at what it gets back.
struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

static WATCHED: AtomicBool = AtomicBool::new(false);
static FOUND: AtomicU64 = AtomicU64::new(0);
/// What is looked for; it stands nowhere else in this program.
const SECRET: &[u8] = b"s3cret-canary-of-the-freed-memory-test";

// SAFETY: the calls are passed on as they are; what is looked at is a block that was handed out and
// not yet given back.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if WATCHED.load(Ordering::Relaxed) && holds(block, layout.size()) {
            FOUND.fetch_add(1, Ordering::Relaxed);
        }
        unsafe { System.dealloc(block, layout) }
    }
}

/// Whether a block holds the secret.
fn holds(block: *const u8, size: usize) -> bool {
    let at = |n: usize| unsafe { block.add(n).read_volatile() };
    let last = size.checked_sub(SECRET.len());
    last.is_some_and(|last| {
        (0..=last).any(|from| (0..SECRET.len()).all(|n| at(from + n) == SECRET[n]))
    })
}

fn found(watched: impl FnOnce()) -> u64 {
    FOUND.store(0, Ordering::Relaxed);
    WATCHED.store(true, Ordering::Relaxed);
    watched();
    WATCHED.store(false, Ordering::Relaxed);
    FOUND.load(Ordering::Relaxed)
}

#[test]
fn encrypting_and_decrypting_leave_no_clear_text_in_freed_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (keyring, _) = Keyring::open(dir.path()).expect("a keystore");
    let key = keyring.generate("key".to_owned(), 1).expect("a key");
    keyring.activate(key.id()).expect("it is here");
    // The watcher sees what it is there for.
    let secret = String::from_utf8_lossy(SECRET).into_owned();
    assert_eq!(found(|| drop(secret.clone().into_bytes())), 1);
    // Some are as they are, and some have to be written in another way: a key has lines.
    let items = (0..40).map(|number| match number % 2 {
        0 => (format!("item {number}"), secret.clone()),
        _ => (
            format!("\"{secret}\" {number}"),
            format!("-----BEGIN-----\n{secret}\n-----END-----\n"),
        ),
    });
    let clear = VariableDecrypted {
        namespace: "default".into(),
        path: "a".into(),
        items: items.collect::<std::collections::BTreeMap<_, _>>().into(),
        ..VariableDecrypted::default()
    };
    let mut sealed = None;
    assert_eq!(found(|| sealed = keyring.encrypt(&clear).ok()), 0);
    let sealed = sealed.expect("it is encrypted");
    let mut opened = None;
    assert_eq!(found(|| opened = keyring.decrypt(&sealed).ok()), 0);
    let opened = opened.expect("it is decrypted");
    assert_eq!(opened.items, clear.items);
    assert_eq!(found(|| drop(secret_json(&*opened))), 0);
    assert_eq!(found(|| drop(opened)), 0);
}
