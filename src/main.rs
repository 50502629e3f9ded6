//! The drover binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything starts a thread: an executor is its process's only one.
    if let Some(code) = drover::client::executor::dispatch(std::env::args_os()) {
        std::process::exit(code);
    }
    drover::cli::main(std::env::args_os())
}
