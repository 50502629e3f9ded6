//! Jobs.
//!
//! A job's id may hold slashes, so everything under `/v1/job/` is one route: the id is what stands
//! before one of the known endings, tried in Nomad's order.

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
pub(super) use path::{ROUTE, job_id, listed, route, route_of};
pub(super) use shapes::*;
pub(super) use write::{REGISTER, register};
