//! What evaluations that wait ask of volumes, and which changes of volumes they wait for (CSI-43).

use std::collections::BTreeMap;

use drover_events::csi::mode;
use drover_events::model::Evaluation;
use drover_events::model::status::{host_volume, volume_type};
use drover_projections::query::csi;
use drover_projections::tables::csi_plugins::CsiPlugins;
use drover_projections::tables::csi_volumes::CsiVolumes;
use drover_projections::tables::host_volumes::HostVolumes;
use drover_projections::tables::jobs::Jobs;
use drover_projections::{Change, Operation, StorageError, Table, View};

/// What became usable at an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usable {
    /// A CSI volume: (namespace, id).
    Csi(String, String),
    /// A host volume: (namespace, name).
    Host(String, String),
    /// Every CSI volume of some plugin.
    Plugin,
}

/// A volume that a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    csi: bool,
    source: String,
    per_alloc: bool,
}

impl Ask {
    /// One CSI volume for all allocations.
    #[cfg(test)]
    pub fn csi(source: &str) -> Self {
        Self {
            csi: true,
            source: source.into(),
            per_alloc: false,
        }
    }

    fn is_for(&self, id: &str) -> bool {
        match id.strip_prefix(self.source.as_str()) {
            Some(rest) if self.per_alloc => rest.starts_with('['),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }

    /// Whether it waits for this, as a job of a namespace.
    pub fn awaits(&self, namespace: &str, usable: &Usable) -> bool {
        match usable {
            Usable::Csi(space, id) => self.csi && space == namespace && self.is_for(id),
            Usable::Host(space, name) => !self.csi && space == namespace && self.is_for(name),
            Usable::Plugin => self.csi,
        }
    }
}

/// What the job of an evaluation asks of volumes.
pub fn asks_of(view: &View, eval: &Evaluation) -> Result<Vec<Ask>, StorageError> {
    let job = view.get::<Jobs>((eval.namespace.as_str(), eval.job_id.as_str()))?;
    let Some(job) = job else {
        return Ok(Vec::new());
    };
    let requests = job
        .task_groups
        .iter()
        .flat_map(|group| group.volumes.values());
    let ask = |request: &drover_events::model::VolumeRequest| Ask {
        csi: request.r#type == volume_type::CSI,
        source: request.source.clone(),
        per_alloc: request.per_alloc,
    };
    Ok(requests.map(ask).collect())
}

/// What a change made usable: a volume that somebody may claim now, or a plugin that runs.
pub fn usable(view: &View, change: &Change) -> Result<Option<Usable>, StorageError> {
    if change.operation != Operation::Put {
        return Ok(None);
    }
    let Some(key) = change.stream_keys.first() else {
        return Ok(None);
    };
    let namespace = change.namespace.as_str();
    match change.table {
        CsiVolumes::ID => {
            let volume = csi::volume(view, (namespace, key))?;
            let free = volume.is_some_and(|volume| {
                let room = |mode| volume.row.has_room("", mode, "");
                volume.schedulable() && (room(mode::READ) || room(mode::WRITE))
            });
            Ok(free.then(|| Usable::Csi(namespace.to_owned(), key.clone())))
        }
        CsiPlugins::ID => {
            let plugin = view.get::<CsiPlugins>(key.as_str())?;
            let runs = plugin.is_some_and(|row| row.plugin.nodes_healthy > 0);
            Ok(runs.then_some(Usable::Plugin))
        }
        HostVolumes::ID => {
            let volume = view.get::<HostVolumes>((namespace, key.as_str()))?;
            let ready = volume.filter(|volume| volume.state == host_volume::READY);
            Ok(ready.map(|volume| Usable::Host(volume.namespace, volume.name)))
        }
        _ => Ok(None),
    }
}

/// What jobs that wait ask for, and when which volume became usable.
#[derive(Debug, Default)]
pub struct Volumes {
    asks: BTreeMap<(String, String), Vec<Ask>>,
    usable: BTreeMap<Usable, u64>,
}

impl Volumes {
    /// Keeps what a job that waits asks for.
    pub fn wait(&mut self, job: (String, String), asks: Vec<Ask>) {
        match asks.is_empty() {
            true => drop(self.asks.remove(&job)),
            false => drop(self.asks.insert(job, asks)),
        }
    }

    /// Notes what became usable, for whoever decided before that and waits only then.
    pub fn note(&mut self, usable: &Usable, index: u64) {
        self.usable.insert(usable.clone(), index);
    }

    /// Whether something that is asked for became usable after a decision's snapshot.
    pub fn missed(&self, namespace: &str, asks: &[Ask], snapshot: u64) -> bool {
        !asks.is_empty()
            && self.usable.iter().any(|(usable, index)| {
                *index > snapshot && asks.iter().any(|ask| ask.awaits(namespace, usable))
            })
    }

    /// Whether a job waits for it.
    pub fn awaited(&self, job: &(String, String), usable: &Usable) -> bool {
        let asks = self.asks.get(job);
        asks.is_some_and(|asks| asks.iter().any(|ask| ask.awaits(&job.0, usable)))
    }

    /// Forgets the jobs that do not wait any more.
    pub fn keep(&mut self, waits: impl Fn(&(String, String)) -> bool) {
        self.asks.retain(|job, _| waits(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(source: &str, per_alloc: bool, csi: bool) -> Ask {
        Ask {
            csi,
            source: source.into(),
            per_alloc,
        }
    }

    #[test]
    fn a_job_awaits_its_own_volumes_and_no_other_s() {
        let data = Usable::Csi("prod".into(), "data".into());
        let third = Usable::Csi("prod".into(), "data[2]".into());
        let one = ask("data", false, true);
        assert!(one.awaits("prod", &data) && !one.awaits("dev", &data));
        assert!(
            !one.awaits("prod", &third)
                && !one.awaits("prod", &Usable::Csi("prod".into(), "data2".into()))
        );
        let each = ask("data", true, true);
        assert!(each.awaits("prod", &third) && !each.awaits("prod", &data));
        let host = ask("data", false, false);
        assert!(!host.awaits("prod", &data) && !host.awaits("prod", &Usable::Plugin));
        assert!(host.awaits("prod", &Usable::Host("prod".into(), "data".into())));
        assert!(one.awaits("prod", &Usable::Plugin));
    }

    #[test]
    fn what_became_usable_after_the_decision_is_not_missed() {
        let mut volumes = Volumes::default();
        let data = Usable::Csi("prod".into(), "data".into());
        volumes.note(&data, 10);
        let asks = [ask("data", false, true)];
        assert!(volumes.missed("prod", &asks, 9));
        assert!(!volumes.missed("prod", &asks, 10) && !volumes.missed("dev", &asks, 9));
        assert!(!volumes.missed("prod", &[], 9));
        let job = ("prod".to_owned(), "web".to_owned());
        volumes.wait(job.clone(), asks.to_vec());
        assert!(volumes.awaited(&job, &data));
        volumes.keep(|_| false);
        assert!(!volumes.awaited(&job, &data));
    }
}
