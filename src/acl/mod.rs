//! The language of access rights: what a policy says, and what policies allow together.
//!
//! [`parse`] reads a policy's rules, HCL or JSON; [`Acl::compile`] merges policies into one [`Acl`]
//! that answers whether something may be done.
//!
//! - It is pure: no table, no request, no clock. Which policies an identity holds is for the
//!   caller.
//! - Nothing is allowed that no policy names. `deny` in any policy wins for the rule it is in.
//! - Of several rules the exact name counts, else the pattern with the most characters that are not
//!   `*`; of two such, the first in the order of bytes.
//! - It bounds what it reads: rules on writing have at most [`MAX_RULES_BYTES`] and
//!   [`MAX_RULES`], and a pattern is matched in time that only its own length and the name's count
//!   for.
//!
//! Start reading at [`Policy`], then [`Acl`].

mod capability;
mod compiled;
mod error;
mod glob;
mod parse;
mod policy;

#[cfg(test)]
mod compiled_test;
#[cfg(test)]
mod parse_test;
#[cfg(test)]
mod property_test;

pub use capability::{
    Capability, HostVolumeCapability, NamespaceCapability, NodePoolCapability, OperatorCapability,
    Set, Unknown, VariableCapability,
};
pub use compiled::Acl;
pub use error::PolicyError;
pub use glob::Glob;
pub use parse::{MAX_RULES, MAX_RULES_BYTES, Strictness, parse};
pub use policy::{PluginLevel, Policy, PolicyLevel, Rule, VariableRule};
