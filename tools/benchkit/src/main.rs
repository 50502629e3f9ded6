//! Benchmarks, each with its floor in the same run.

fn main() {}
