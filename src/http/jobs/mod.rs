//! Jobs.
//!
//! Everything under `/v1/job/` is one route (`src/http/job_path.rs`), found by `path.rs`.

pub(super) mod children;
mod list;
mod parse;
mod path;
mod plan;
mod read;
mod ready_list;
mod scale;
pub(super) mod shapes;
pub(super) mod statuses;
mod statuses_shapes;
mod tags;
mod versions;
mod volumes;
mod write;

#[cfg(test)]
mod calls_test;
#[cfg(test)]
mod statuses_test;

pub(super) use list::{list, list_of, near_list};
pub(super) use parse::{PARSE, parse, validate};
#[cfg(test)]
pub(super) use path::watched;
pub(super) use path::{job_id, listed, route};
pub(super) use shapes::*;
pub(super) use write::{REGISTER, register};
