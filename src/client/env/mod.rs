//! The environment of a task: `NOMAD_*` variables, ports, metadata, and the interpolation of
//! `${…}` in whatever a job says (ENV-05).
//!
//! A library of its own: drivers, hooks and tools that need it depend on nothing else of the
//! client. It must not know: drivers, runners, servers, the file system.
//!
//! Precedence, low to high: built-in `NOMAD_*`, the agent's own environment (only where nothing
//! else says a name), the task's `env`, what hooks add.

mod builder;
mod interpolate;
mod names;

pub use builder::{TaskEnv, TaskEnvInput, TaskPaths};
pub use interpolate::interpolate;
pub use names::{clean, cpu_set, inherited, matches};
