//! The client and a real server in one process: what each does that the other brings about.

mod calls_test;
mod exec_test;
mod harness;
mod life_test;
mod metadata_test;
mod service_test;
mod wire_test;

pub(crate) use harness::{World, group};
