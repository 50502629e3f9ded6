//! The drover binary.

use std::process::ExitCode;

/// Many threads allocate what others free, which the system's allocator keeps in arenas of their
/// own; this one is faster at it and gives back what is free.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything starts a thread: an executor is its process's only one.
    if let Some(code) = drover::client::executor::dispatch(std::env::args_os()) {
        std::process::exit(code);
    }
    drover::cli::main(std::env::args_os())
}
