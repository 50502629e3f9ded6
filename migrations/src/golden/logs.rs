//! Recorded logs: what older versions wrote, one after the other, as a server of then would have.
//!
//! `logs/<name>.log` holds bodies, each behind its length (u32 LE); it is written once by
//! [`freeze`] and never edited. `<name>.pinned.json` beside it says what it must come to: the
//! events of old versions as they are read today, and the digest of every table that then holds
//! something.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use drover_events::cluster::{LeaderElected, SchedulerConfigured, VersionBarrierRaised};
use drover_events::eval::EvalsUpserted;
use drover_events::model::{Evaluation, SchedulerConfiguration};
use drover_events::{Actor, Envelope, Event, EventId, EventKind, RaftPayload};

use super::samples::{self, TIME};
use drover_migrations::events::csi_v1::{
    CsiVolumeClaimsAppliedV1, CsiVolumeDeregisteredV1, CsiVolumesRegisteredV1,
};
use drover_migrations::events::csi_volume_v1::{ClaimV1, CsiVolumeV1};
use drover_migrations::events::evals_deleted_v1::EvalsDeletedV1;

/// The names of all recorded logs.
pub const NAMES: [&str; 2] = ["deletions_by_filter", "volumes_of_three_ages"];

/// Writes the logs that are not there yet. Gives the paths that were written.
///
/// # Errors
/// Those of the file system.
pub fn freeze(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    fs::create_dir_all(directory)?;
    for name in NAMES {
        let path = directory.join(format!("{name}.log"));
        if path.exists() {
            continue;
        }
        let mut bytes = Vec::new();
        for body in bodies(name) {
            let length = u32::try_from(body.len()).map_err(|_| ErrorKind::InvalidData)?;
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&body);
        }
        fs::write(&path, bytes)?;
        written.push(path);
    }
    Ok(written)
}

/// The bodies of a recorded log.
///
/// # Errors
/// Those of the file system; `InvalidData` for a log that ends within a body.
pub fn read(directory: &Path, name: &str) -> Result<Vec<Vec<u8>>> {
    let bytes = fs::read(directory.join(format!("{name}.log")))?;
    let mut rest = bytes.as_slice();
    let mut bodies = Vec::new();
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let cut = || Error::new(ErrorKind::InvalidData, format!("{name} is cut"));
        let (body, more) = more.split_at_checked(length).ok_or_else(cut)?;
        bodies.push(body.to_vec());
        rest = more;
    }
    Ok(bodies)
}

/// A log as it is written: the next index with each event.
#[derive(Default)]
struct Story(Vec<Vec<u8>>);

impl Story {
    fn today(&mut self, event: impl Into<Event>) {
        let index = self.0.len() as u64 + 1;
        let mut id = [0; 16];
        id[8..].copy_from_slice(&index.to_be_bytes());
        let envelope = Envelope {
            time: TIME,
            id: EventId(id),
            actor: Actor::server("s1", "story"),
            request_id: format!("request-{index}"),
            cause: None,
            trace: String::new(),
            guards: Vec::new(),
            event: event.into(),
        };
        let payload = RaftPayload::encode(&envelope).expect("a sample encodes");
        self.0.push(payload.body(index, 1));
    }

    fn old<T: serde::Serialize>(&mut self, kind: EventKind, version: u16, payload: &T) {
        let index = self.0.len() as u64 + 1;
        let payload = samples::old(kind, version, payload, Vec::new());
        self.0.push(payload.body(index, 1));
    }
}

fn bodies(name: &str) -> Vec<Vec<u8>> {
    let mut story = Story::default();
    story.today(LeaderElected {
        server_id: "s1".into(),
        level: 1,
        ..Default::default()
    });
    story.today(VersionBarrierRaised {
        level: 1,
        servers: [("s1".into(), 1)].into(),
    });
    match name {
        "deletions_by_filter" => deletions(&mut story),
        _ => volumes(&mut story),
    }
    story.0
}

/// Evaluations, most of which are deleted by filter and by id, as version 1 recorded that.
fn deletions(story: &mut Story) {
    let config = SchedulerConfiguration {
        pause_eval_broker: true,
        ..Default::default()
    };
    story.today(SchedulerConfigured { config, cas: false });
    let eval = |number: usize| Evaluation {
        id: format!("5b0cd2c5-0000-4000-8000-{number:012}"),
        namespace: "default".into(),
        job_id: format!("job-{}", number % 3),
        status: ["pending", "complete"][number % 2].into(),
        triggered_by: "job-register".into(),
        priority: 50,
        ..Evaluation::default()
    };
    for page in 0..4 {
        let evals = (page * 10..page * 10 + 10).map(eval).collect();
        story.today(EvalsUpserted {
            evals,
            decision: None,
        });
    }
    let by_filter = EvalsDeletedV1 {
        filter: "JobID == \"job-1\"".into(),
        per_page: 5,
        user_initiated: true,
        ..EvalsDeletedV1::default()
    };
    story.old(EventKind::EvalsDeleted, 1, &by_filter);
    let next = EvalsDeletedV1 {
        next_token: eval(16).id,
        ..by_filter
    };
    story.old(EventKind::EvalsDeleted, 1, &next);
    let by_id = EvalsDeletedV1 {
        eval_ids: vec![eval(3).id, eval(9).id],
        ..EvalsDeletedV1::default()
    };
    story.old(EventKind::EvalsDeleted, 1, &by_id);
}

/// Volumes and claims: without a namespace, without modes, and complete.
fn volumes(story: &mut Story) {
    let volume = |id: &str, namespace: &str| CsiVolumeV1 {
        id: id.into(),
        name: id.into(),
        namespace: namespace.into(),
        plugin_id: "ebs".into(),
        access_mode: "single-node-writer".into(),
        attachment_mode: "file-system".into(),
        ..CsiVolumeV1::default()
    };
    let registered = CsiVolumesRegisteredV1 {
        volumes: vec![volume("oldest", ""), volume("older", "prod")],
        timestamp: TIME,
    };
    story.old(EventKind::CsiVolumesRegistered, 1, &registered);
    let oldest = ClaimV1 {
        volume_id: "oldest".into(),
        allocation_id: "a1".into(),
        claim: 1,
        ..ClaimV1::default()
    };
    let older = ClaimV1 {
        namespace: "prod".into(),
        volume_id: "older".into(),
        allocation_id: "a2".into(),
        node_id: "n1".into(),
        claim: 0,
        timestamp: TIME,
        ..ClaimV1::default()
    };
    let complete = ClaimV1 {
        access_mode: "multi-node-multi-writer".into(),
        attachment_mode: "block-device".into(),
        external_node_id: "i-1".into(),
        state: 1,
        ..older.clone()
    };
    for claim in [&oldest, &older, &complete] {
        story.old(EventKind::CsiVolumeClaimed, 1, claim);
    }
    let claims = vec![oldest, older, complete];
    story.old(
        EventKind::CsiVolumeClaimsApplied,
        1,
        &CsiVolumeClaimsAppliedV1 { claims },
    );
    let gone = CsiVolumeDeregisteredV1 {
        volume_ids: vec!["oldest".into()],
        force: true,
        ..CsiVolumeDeregisteredV1::default()
    };
    story.old(EventKind::CsiVolumeDeregistered, 1, &gone);
}

#[cfg(test)]
#[path = "logs_test.rs"]
mod tests;
