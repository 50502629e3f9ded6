//! The command line as its users see it: the real program against a real agent.
//!
//! What commands print stands in `golden/`: ids, times, ages, indexes and addresses are replaced
//! (`support::Words`). `DROVER_BLESS=1` writes those files anew; read what changed.

mod acl;
mod allocs;
mod certificates;
mod cluster;
mod completion;
mod configured;
mod deployments;
mod diagnostics;
mod effects;
mod evals;
mod events;
mod exec;
mod flags;
mod host_volumes;
mod jobs;
mod messages;
mod newer;
mod package;
mod past;
mod pretended;
mod recorder;
mod settings;
mod support;
mod volumes;
mod volumes_at_work;
