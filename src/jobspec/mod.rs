//! Job specifications: HCL2 or JSON in, the model's `Job` out.
//!
//! It must not know where a text came from or what happens to the job: no HTTP, no server, no clock.

pub mod diagnostic;
pub mod duration;
mod eval;
mod functions;
mod types;
mod value;
