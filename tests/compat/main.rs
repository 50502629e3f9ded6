//! Old events, new code: every frozen body is decoded, brought to today's form and applied; every
//! server that applies the same log has the same state.

mod golden;
mod replicas;
mod support;
