//! Work that takes longer than a request should hold a thread that serves others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does the work while another thread goes on with what this one served; on a runtime of one
/// thread there is no other, and it is just done.
pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let many = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    match many {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
