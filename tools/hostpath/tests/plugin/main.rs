//! The plugin as a process: against the specification's own tests, strict, and doing wrong.

mod faults;
mod sanity;
mod strict;
mod support;
