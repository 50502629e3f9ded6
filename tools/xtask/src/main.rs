//! The task runner, called as `cargo xtask`.

fn main() {}
