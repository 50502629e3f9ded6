//! Volumes of hosts at work: what has to be done on a node so that what the state says becomes
//! true.
//!
//! It must not know: HTTP, sessions ([`Reach`] is the way to a client), how events are replicated
//! ([`VolumeStore`]).
//!
//! Invariants:
//! 1. A new volume is in the log, pending, before its node is called: its name is taken there, and
//!    whatever breaks off can be seen and requested again, or deleted.
//! 2. What a node refuses to make leaves nothing: not on the node, not in the log but its history.
//! 3. A volume is deleted on its node first, unless the node is gone and that is forced.
//! 4. A server that does not lead calls no node.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::HostVolume;
use drover_events::model::status::node as node_status;
use drover_projections::query::host_volumes;
use drover_projections::tables::host_volumes::HostVolumes as Rows;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::{Projections, Scan};

use crate::base::keyed_locks::KeyedLocks;
use crate::commands::Command;
use crate::commands::host_volume::{self as commands, DeleteHostVolume, RegisterHostVolume};
use crate::error::{Code, Refusal};
use crate::proposer::Origin;
use crate::rpc::Rpc;
use crate::rpc::client_calls::{Reach, Unanswered, call};
use crate::rpc::host_volume::{
    ClientHostVolumeCreate, ClientHostVolumeCreateRequest, ClientHostVolumeCreateResponse,
    ClientHostVolumeDelete, ClientHostVolumeDeleteRequest, ClientHostVolumeRegister,
    ClientHostVolumeRegisterRequest,
};
use crate::scheduler::cluster::Cluster;
use crate::scheduler::host_volume::{PlacementLimits, place};
use crate::volumes::VolumeStore;

/// How long a client has to answer: longer than it waits for a plugin that makes a volume and, as
/// that failed, deletes it.
const LIMIT: Duration = Duration::from_secs(150);

/// How it stands with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It can be called.
    Ready,
    /// It is not ready.
    Away,
    /// It was removed.
    Gone,
}

/// The volumes of hosts of one server.
pub struct HostVolumes {
    projections: Arc<Projections>,
    commands: Arc<dyn VolumeStore>,
    reach: Arc<dyn Reach>,
    /// One change at a time, by namespace and id.
    locks: KeyedLocks<(String, String)>,
    /// Nodes are chosen one after the other, each with what was chosen before.
    placing: tokio::sync::Mutex<()>,
}

impl HostVolumes {
    /// The volumes of the state, whose nodes are reached by `reach`.
    pub fn new(
        projections: Arc<Projections>,
        commands: Arc<dyn VolumeStore>,
        reach: Arc<dyn Reach>,
    ) -> Arc<Self> {
        Arc::new(Self {
            projections,
            commands,
            reach,
            locks: KeyedLocks::default(),
            placing: tokio::sync::Mutex::default(),
        })
    }

    /// Has a volume made on a node that will do, or, with the id of one that is there, has that
    /// made as it is to be now; as it is then, and the index of the last change.
    ///
    /// # Errors
    /// A refusal, of a rule or of the node; that it is not known what the node did.
    pub async fn create(
        &self,
        mut volume: HostVolume,
        origin: &Origin,
    ) -> Result<(HostVolume, u64), Refusal> {
        self.must_lead()?;
        if volume.plugin_id.is_empty() {
            return Err(invalid("missing plugin ID"));
        }
        if volume.id.is_empty() {
            if !volume.host_path.is_empty() || volume.capacity_bytes != 0 {
                let text = "host path and capacity of a volume that is made come from its plugin: \
                            register a volume that is there";
                return Err(invalid(text));
            }
            return self.new_volume(volume, origin, true).await;
        }
        let _guard = self.locks.lock(key(&volume)).await;
        let known = self.known(&mut volume)?;
        let answer = self.made(&volume).await.map_err(|error| {
            let id = &volume.id;
            refused(&format!("volume {id} was not changed"), error)
        })?;
        volume.host_path = answer.host_path;
        volume.capacity_bytes = match answer.capacity_bytes {
            0 => known.capacity_bytes,
            bytes => bytes,
        };
        self.registered(volume, origin).await
    }

    /// Registers a volume that is there on the node that it names.
    ///
    /// # Errors
    /// A refusal, of a rule or of the node; that it is not known what the node did.
    pub async fn register(
        &self,
        mut volume: HostVolume,
        origin: &Origin,
    ) -> Result<(HostVolume, u64), Refusal> {
        self.must_lead()?;
        if volume.id.is_empty() {
            if volume.node_id.is_empty() {
                return Err(invalid("missing node ID"));
            }
            if !volume.host_path.starts_with('/') {
                return Err(invalid("host path must be an absolute path"));
            }
            return self.new_volume(volume, origin, false).await;
        }
        let _guard = self.locks.lock(key(&volume)).await;
        let known = self.known(&mut volume)?;
        if volume.host_path.is_empty() {
            volume.host_path = known.host_path;
        } else if !known.plugin_id.is_empty() && volume.host_path != known.host_path {
            let (id, plugin) = (&volume.id, &known.plugin_id);
            let text = format!("volume {id} lies where its plugin {plugin:?} made it");
            return Err(Refusal::by_rule(text));
        }
        self.there(&volume).await.map_err(|error| {
            let id = &volume.id;
            refused(&format!("volume {id} was not changed"), error)
        })?;
        self.registered(volume, origin).await
    }

    /// Has a volume deleted on its node, and removes it; the index of that. What no plugin made
    /// stays where it is. By force it is removed also when its node is gone.
    ///
    /// # Errors
    /// It is used, or its node does not delete it.
    pub async fn delete(
        &self,
        (namespace, id): (&str, &str),
        force: bool,
        origin: &Origin,
    ) -> Result<u64, Refusal> {
        self.must_lead()?;
        let _guard = self.locks.lock((namespace.to_owned(), id.to_owned())).await;
        let (volume, node) = self.removable((namespace, id))?;
        if let Err(error) = self.deleted(&volume, node).await {
            let is_forced = force && node != Standing::Ready;
            match is_forced && !matches!(error, Unanswered::Refused(_)) {
                true => tracing::warn!(volume = id, "removed by force: {error}"),
                false => return Err(refused(&format!("volume {id} was not deleted"), error)),
            }
        }
        let command = DeleteHostVolume {
            namespace: namespace.to_owned(),
            id: id.to_owned(),
            force,
        };
        self.submit(command, origin).await
    }

    /// A volume that no allocation uses, and how it stands with its node.
    fn removable(&self, (namespace, id): (&str, &str)) -> Result<(HostVolume, Standing), Refusal> {
        let view = self.projections.view();
        let volume = view.get::<Rows>((namespace, id))?;
        let missing = || Refusal::by_rule(format!("no such volume: {id}"));
        let volume = volume.ok_or_else(missing)?;
        let users = host_volumes::users(&view, &volume)?;
        if !users.is_empty() {
            let text = drover_projections::apply::host_volume_in_use(id, &users);
            return Err(Refusal::by_rule(text));
        }
        let node = nodes::get(&view, &volume.node_id)?;
        let standing = match node {
            None => Standing::Gone,
            Some(node) if node.status == node_status::READY => Standing::Ready,
            Some(_) => Standing::Away,
        };
        Ok((volume, standing))
    }

    /// A volume without an id: it gets one, and a node.
    async fn new_volume(
        &self,
        mut volume: HostVolume,
        origin: &Origin,
        is_made: bool,
    ) -> Result<(HostVolume, u64), Refusal> {
        commands::validate(&volume, false)?;
        volume.id = uuid::Uuid::new_v4().to_string();
        let _guard = self.locks.lock(key(&volume)).await;
        {
            let _placing = self.placing.lock().await;
            volume.node_id = self.placed(&volume, is_made)?;
            self.registered(volume.clone(), origin).await?;
        }
        let requested = match is_made {
            true => self.made(&volume).await.map(Some),
            false => self.there(&volume).await.map(|()| None),
        };
        match requested {
            Ok(Some(answer)) => {
                volume.host_path = answer.host_path;
                volume.capacity_bytes = answer.capacity_bytes;
                self.registered(volume, origin).await
            }
            Ok(None) => self.now(&volume),
            Err(error) => Err(self.given_up(&volume, error, origin).await),
        }
    }

    /// The answer about a volume that its node did not take. Nothing is left of one that it
    /// refused, or did not get the request for; of any other it is not known what the node did, so
    /// it stays.
    async fn given_up(&self, volume: &HostVolume, error: Unanswered, origin: &Origin) -> Refusal {
        let (id, node) = (&volume.id, &volume.node_id);
        if may_be_done(&error) {
            let text = format!(
                "{error}; volume {id} is pending on node {node}, which may have it: say the same \
                 again with this id, or delete it"
            );
            return Refusal::new(Code::Unavailable, text);
        }
        let what = format!("volume {:?} was not taken by node {node}", volume.name);
        let mut refusal = refused(&what, error);
        let command = DeleteHostVolume {
            namespace: volume.namespace.clone(),
            id: id.clone(),
            force: false,
        };
        if let Err(error) = self.submit(command, origin).await {
            let text = format!("; volume {id} stays pending, delete it: {}", error.message);
            refusal.message.push_str(&text);
        }
        refusal
    }

    /// The volume of the id, which stays on its node and its plugin's; fields that are not given
    /// are as it was.
    fn known(&self, volume: &mut HostVolume) -> Result<HostVolume, Refusal> {
        let view = self.projections.view();
        let known = view.get::<Rows>((volume.namespace.as_str(), volume.id.as_str()))?;
        let known = known.ok_or_else(|| {
            let id = &volume.id;
            Refusal::by_rule(format!(
                "cannot update volume \"{id}\": volume does not exist"
            ))
        })?;
        for (new, old) in [
            (&mut volume.name, &known.name),
            (&mut volume.node_id, &known.node_id),
            (&mut volume.plugin_id, &known.plugin_id),
        ] {
            if new.is_empty() {
                new.clone_from(old);
            }
        }
        commands::validate(volume, true)?;
        let kept = drover_projections::apply::check_host_volume_immutable_fields(&known, volume);
        kept.map_err(Refusal::by_rule)?;
        Ok(known)
    }

    /// The node that a volume comes to.
    fn placed(&self, volume: &HostVolume, is_made: bool) -> Result<String, Refusal> {
        let view = self.projections.view();
        let pool = volume.node_pool.as_str();
        if !pool.is_empty() && view.get::<NodePools>(pool)?.is_none() {
            return Err(Refusal::by_rule(format!(
                "node pool \"{pool}\" does not exist"
            )));
        }
        let mut cluster = Cluster::default();
        let named = match volume.node_id.as_str() {
            "" => None,
            id => Some(view.get::<Nodes>(id)?),
        };
        let all: Box<dyn Iterator<Item = _>> = match named {
            Some(named) => Box::new(named.into_iter().map(Ok)),
            None => Box::new(view.scan::<Nodes>(Scan::all())),
        };
        for node in all {
            let node = node?;
            let state = view.get::<NodeStates>(node.id.as_str())?;
            cluster.upsert_node(nodes::join(node, state.unwrap_or_default()));
        }
        let taken = host_volumes::nodes_with(&view, &volume.name)?;
        let limits = PlacementLimits {
            nodes: &taken,
            needs_plugin: is_made,
        };
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        place(&cluster, volume, &limits, seed).map_err(|none| {
            let name = &volume.name;
            Refusal::by_rule(format!("could not place volume \"{name}\": {none}"))
        })
    }

    async fn made(
        &self,
        volume: &HostVolume,
    ) -> Result<ClientHostVolumeCreateResponse, Unanswered> {
        let requested = ClientHostVolumeCreateRequest {
            id: volume.id.clone(),
            name: volume.name.clone(),
            plugin_id: volume.plugin_id.clone(),
            namespace: volume.namespace.clone(),
            node_id: volume.node_id.clone(),
            requested_capacity_min_bytes: volume.requested_capacity_min_bytes,
            requested_capacity_max_bytes: volume.requested_capacity_max_bytes,
            parameters: volume.parameters.clone(),
        };
        self.ask::<ClientHostVolumeCreate>(&volume.node_id, &requested)
            .await
    }

    async fn there(&self, volume: &HostVolume) -> Result<(), Unanswered> {
        let requested = ClientHostVolumeRegisterRequest {
            id: volume.id.clone(),
            name: volume.name.clone(),
            namespace: volume.namespace.clone(),
            node_id: volume.node_id.clone(),
            host_path: volume.host_path.clone(),
            capacity_bytes: volume.capacity_bytes,
            parameters: volume.parameters.clone(),
        };
        self.ask::<ClientHostVolumeRegister>(&volume.node_id, &requested)
            .await?;
        Ok(())
    }

    async fn deleted(&self, volume: &HostVolume, on: Standing) -> Result<(), Unanswered> {
        let node = &volume.node_id;
        if on == Standing::Gone {
            let text = format!("node {node} is gone: by force it is removed all the same");
            return Err(Unanswered::Unreached(text));
        }
        let requested = ClientHostVolumeDeleteRequest {
            id: volume.id.clone(),
            name: volume.name.clone(),
            plugin_id: volume.plugin_id.clone(),
            namespace: volume.namespace.clone(),
            node_id: node.clone(),
            host_path: volume.host_path.clone(),
            parameters: volume.parameters.clone(),
        };
        self.ask::<ClientHostVolumeDelete>(node, &requested).await?;
        Ok(())
    }

    async fn ask<R: Rpc>(&self, node: &str, requested: &R::Req) -> Result<R::Res, Unanswered> {
        call::<R>(&*self.reach, node, requested, LIMIT).await
    }

    /// A server that does not lead must not change anything outside.
    fn must_lead(&self) -> Result<(), Refusal> {
        self.commands
            .term()
            .map(drop)
            .ok_or_else(Refusal::no_leader)
    }

    async fn submit(&self, command: impl Command, origin: &Origin) -> Result<u64, Refusal> {
        let done = self.commands.submit(Arc::new(command), origin.clone());
        Ok(done.await?.index)
    }

    async fn registered(
        &self,
        volume: HostVolume,
        origin: &Origin,
    ) -> Result<(HostVolume, u64), Refusal> {
        let command = RegisterHostVolume {
            volume: volume.clone(),
        };
        let index = self.submit(command, origin).await?;
        let (volume, _) = self.now(&volume)?;
        Ok((volume, index))
    }

    /// A volume as it is now, and its index.
    fn now(&self, volume: &HostVolume) -> Result<(HostVolume, u64), Refusal> {
        let view = self.projections.view();
        let row = view.get::<Rows>((volume.namespace.as_str(), volume.id.as_str()))?;
        let gone = || Refusal::by_rule(format!("volume {} was deleted meanwhile", volume.id));
        let row = row.ok_or_else(gone)?;
        let index = row.modify_index;
        Ok((row, index))
    }
}

fn key(volume: &HostVolume) -> (String, String) {
    (volume.namespace.clone(), volume.id.clone())
}

fn invalid(text: &str) -> Refusal {
    Refusal::bad_request(format!("volume validation failed: {text}"))
}

/// Whether a node may have made what was requested, and kept it. What it fails at by itself, or
/// could not undo, it does not say of what it certainly did not do.
fn may_be_done(error: &Unanswered) -> bool {
    match error {
        Unanswered::Unsure(_) => true,
        Unanswered::Unreached(_) => false,
        Unanswered::Refused(error) => {
            matches!(
                error.code,
                Code::Internal | Code::Unavailable | Code::Timeout
            )
        }
    }
}

/// What a client did not do.
fn refused(what: &str, error: Unanswered) -> Refusal {
    let code = match &error {
        Unanswered::Refused(refusal) => refusal.code,
        Unanswered::Unreached(_) | Unanswered::Unsure(_) => Code::Unavailable,
    };
    Refusal::new(code, format!("{what}: {error}"))
}
