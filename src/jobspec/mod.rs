//! Job specifications: HCL2 or JSON in, the model's `Job` out.
//!
//! The way: text → syntax tree with places (`bounds`, `scan`) → evaluated tree (`tree`, through
//! `eval` with variables, locals and functions) → decode table (`decode`) → [`ApiJob`],
//! a job in the API's form in which "not set" and "set to zero" differ → canonical defaults
//! (`canonical`) → the model's `Job` → [`validate()`].
//!
//! The decode table is what the fields of the model's job say of themselves
//! ([`drover_events::field`]): their names in specifications and in JSON and what they hold. It
//! serves native and JSON specifications (`decode`), jobs in the API's form (`request_job`,
//! `normal`) and the full form that the parse route answers with.
//!
//! - It must not know where a text came from or what happens to the job: no HTTP, no server, no
//!   clock but the one that ends what takes too long (`budget`).
//! - Texts are hostile: long, deep, cyclic, not even text. Every limit is a clear error, nothing
//!   panics.
//! - Every problem is reported at once, with its location.

mod admit;
mod api;
mod bounds;
mod budget;
mod canonical;
mod canonical_service;
mod canonical_task;
pub mod cron;
mod decode;
pub mod diagnostic;
mod eval;
mod fixup;
mod functions;
mod json;
mod locals;
mod normal;
mod parse;
mod pattern;
mod refs;
mod request_job;
mod scan;
mod tree;
mod types;
pub mod validate;
mod value;
mod variables;

pub use api::ApiJob;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use drover_events::duration;
pub use functions::Functions;
pub use normal::FieldError;
pub use parse::{Input, parse, parse_other_spec};
pub use request_job::ParsedJob;
pub use validate::{JobLimits, Validation, unbuilt, validate};

#[cfg(test)]
mod canonical_test;
#[cfg(test)]
mod dear_test;
#[cfg(test)]
mod parse_test;
#[cfg(test)]
mod property_test;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: drover_testkit::counting::Counting = drover_testkit::counting::Counting;
