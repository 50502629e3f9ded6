//! Work that takes longer than a request should hold a thread that serves others.

pub(super) use crate::table_reads::offload;
