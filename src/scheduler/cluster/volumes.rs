//! Volumes as the scheduler sees them: which volumes exist, which allocations hold them, and which
//! will.
//!
//! A client claims a volume only when it starts an allocation. Until then the allocation itself
//! counts: so that of several jobs that want to write one volume, one is placed at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::csi::has_capacity;
use drover_events::model::status::{VolumeType, access_mode};
use drover_events::model::{
    Allocation, CsiTopology, HostVolumeCapability, JobKey, TaskGroup, VolumeRequest,
};
use imbl::{OrdMap, OrdSet};

/// Which volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKey {
    /// A CSI volume: namespace and id.
    Csi(String, String),
    /// A volume of a node: the node and its name there.
    Host(String, String),
}

/// What an allocation does with a volume that cannot be shared as one likes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUse {
    pub key: VolumeKey,
    /// Whose allocation it is.
    pub job: JobKey,
    pub writes: bool,
    /// As what it is claimed.
    pub access_mode: String,
    /// How it is attached.
    pub attachment_mode: String,
}

/// Which of a group's volumes are counted, for an allocation on a node.
pub fn uses_of(
    group: &TaskGroup,
    (namespace, job): (&str, &str),
    (alloc_name, node_id): (&str, &str),
) -> Vec<VolumeUse> {
    let counted = |request: &&VolumeRequest| match request.kind() {
        Some(VolumeType::Csi) => true,
        // Others may be used by as many as are on the node.
        Some(VolumeType::Host) => {
            request.access_mode == access_mode::SINGLE_NODE_SINGLE_WRITER || request.sticky
        }
        None => false,
    };
    let use_of = |request: &VolumeRequest| {
        let source = request.source_for(alloc_name).into_owned();
        let (key, (access, attachment)) = match request.kind() {
            Some(VolumeType::Csi) => (
                VolumeKey::Csi(namespace.to_owned(), source),
                request.csi_modes(),
            ),
            Some(VolumeType::Host) | None => (
                VolumeKey::Host(node_id.to_owned(), source),
                (
                    request.access_mode.as_str(),
                    request.attachment_mode.as_str(),
                ),
            ),
        };
        VolumeUse {
            key,
            job: (namespace.to_owned(), job.to_owned()),
            writes: !request.read_only,
            access_mode: access.to_owned(),
            attachment_mode: attachment.to_owned(),
        }
    };
    group.volumes.values().filter(counted).map(use_of).collect()
}

/// The same for an allocation with its job.
pub fn uses_of_alloc(alloc: &Allocation) -> Vec<VolumeUse> {
    let job = (alloc.namespace.as_str(), alloc.job_id.as_str());
    let place = (alloc.name.as_str(), alloc.node_id.as_str());
    alloc
        .group()
        .map(|group| uses_of(group, job, place))
        .unwrap_or_default()
}

/// A claim on a volume: it counts until it is released, whatever became of its allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub alloc_id: String,
    /// Its job; none when the allocation is gone.
    pub job: Option<JobKey>,
    pub node_id: String,
    pub writes: bool,
    /// As what it holds it; empty where that is not known.
    pub access_mode: String,
    /// How it is attached for it; empty where that is not known.
    pub attachment_mode: String,
}

/// A CSI volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CsiFacts {
    pub plugin_id: String,
    /// Claims need a controller.
    pub controller_required: bool,
    /// The mode in which it is claimed now; empty while it has no claims.
    pub access_mode: String,
    /// As what it may be claimed: access modes, each with how it is attached; empty: anyhow.
    pub modes: BTreeSet<(String, String)>,
    /// Where it can be reached; empty: everywhere.
    pub topologies: Vec<CsiTopology>,
    /// The plugin cannot take more for now.
    pub exhausted: bool,
    /// Claims, those that are being released among them.
    pub holders: Vec<Holder>,
}

/// The health of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginFacts {
    /// Healthy controllers.
    pub controllers: i64,
    /// Nodes where it can mount.
    pub nodes: i64,
    /// Claims need a controller, where the plugin says so: this counts, and not what was known of
    /// the volume when it was claimed last.
    pub controller_required: Option<bool>,
}

/// What a group sticks to: namespace, job, group, and the id of the volume.
pub type GroupClaim = (String, String, String, String);

/// A volume of a host that the cluster manages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    pub namespace: String,
    pub node_id: String,
    /// Its name there.
    pub name: String,
    /// It can be used.
    pub ready: bool,
    /// As what it may be used.
    pub capabilities: Vec<HostVolumeCapability>,
}

/// An allocation that takes resources and uses a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    job: JobKey,
    writes: bool,
    access_mode: String,
    attachment_mode: String,
}

/// Why a volume cannot be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It or its plugin is not usable now, or not so.
    Unusable,
    /// Others hold it.
    InUse,
    /// Only what is gone holds it: this allocation's claim is about to be released.
    Left(String),
}

/// All volumes at one index.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    csi: OrdMap<VolumeKey, Arc<CsiFacts>>,
    host: OrdMap<String, Arc<HostFacts>>,
    /// The volumes of hosts that groups hold: namespace, job, group, volume.
    sticky: OrdSet<GroupClaim>,
    plugins: OrdMap<String, PluginFacts>,
    users: OrdMap<VolumeKey, Arc<BTreeMap<String, User>>>,
    /// CSI volumes by the node they are held or used on, with how many times.
    on_node: OrdMap<(String, VolumeKey), u32>,
}

impl Volumes {
    /// Whether the cluster manages no volumes.
    pub fn is_empty(&self) -> bool {
        self.csi.is_empty() && self.host.is_empty()
    }

    /// A CSI volume.
    pub fn csi(&self, key: &VolumeKey) -> Option<&Arc<CsiFacts>> {
        self.csi.get(key)
    }

    /// A volume of a host, by its id.
    pub fn host(&self, id: &str) -> Option<&Arc<HostFacts>> {
        self.host.get(id)
    }

    /// A CSI volume is there, is another one now, or is gone.
    pub fn set_csi(&mut self, key: VolumeKey, facts: Option<CsiFacts>) {
        if let Some(before) = self.csi.remove(&key) {
            for holder in &before.holders {
                self.count(&holder.node_id, &key, false);
            }
        }
        if let Some(facts) = facts {
            for holder in &facts.holders {
                self.count(&holder.node_id, &key, true);
            }
            self.csi.insert(key, Arc::new(facts));
        }
    }

    /// The same of a volume of a host.
    pub fn set_host(&mut self, id: String, facts: Option<HostFacts>) {
        match facts {
            Some(facts) => drop(self.host.insert(id, Arc::new(facts))),
            None => drop(self.host.remove(&id)),
        }
    }

    /// A group holds a volume of a host, or gives it back.
    pub fn set_sticky(&mut self, claim: GroupClaim, held: bool) {
        match held {
            true => drop(self.sticky.insert(claim)),
            false => drop(self.sticky.remove(&claim)),
        }
    }

    /// The volumes of a name that a group holds: id and what is known of each.
    pub fn held_by(
        &self,
        (namespace, job): (&str, &str),
        group: &str,
        name: &str,
    ) -> Vec<(&str, &HostFacts)> {
        let own = |text: &str| text.to_owned();
        let from = (own(namespace), own(job), own(group), String::new());
        let claims = self.sticky.range(from..);
        let claims =
            claims.take_while(|(ns, of, g, _)| (ns == namespace) && (of == job) && (g == group));
        let known = |claim: &GroupClaim| self.host.get(&claim.3).map(|facts| &**facts);
        let claims = claims.filter_map(|claim| Some((claim.3.as_str(), known(claim)?)));
        claims.filter(|(_, facts)| facts.name == name).collect()
    }

    /// How many allocations of a job use a volume.
    pub fn used_by(&self, key: &VolumeKey, job: &JobKey) -> usize {
        let users = self.users.get(key);
        let users = users.into_iter().flat_map(|users| users.values());
        users.filter(|user| user.job == *job).count()
    }

    /// The same of a plugin; answers which CSI volumes can be used from now on.
    pub fn set_plugin(&mut self, id: &str, facts: Option<PluginFacts>) -> Vec<VolumeKey> {
        let before = self.plugins.get(id).copied();
        match facts {
            Some(facts) => drop(self.plugins.insert(id.to_owned(), facts)),
            None => drop(self.plugins.remove(id)),
        }
        let serves = |facts: PluginFacts| {
            let controlled = facts.controllers > 0;
            (facts.nodes > 0, controlled, facts.controller_required)
        };
        if before.map(serves) == facts.map(serves) {
            return Vec::new();
        }
        let of_plugin = self.csi.iter().filter(|(_, csi)| csi.plugin_id == id);
        let usable = of_plugin
            .filter(|(_, csi)| !can_use(before.as_ref(), csi) && can_use(facts.as_ref(), csi));
        usable.map(|(key, _)| key.clone()).collect()
    }

    /// An allocation that takes resources uses these on a node.
    pub fn add_user(&mut self, alloc_id: &str, node_id: &str, uses: &[VolumeUse]) {
        for one in uses {
            let users = self.users.entry(one.key.clone()).or_default();
            let users = Arc::make_mut(users);
            if let Some(known) = users.get_mut(alloc_id) {
                // Two requests for one volume: one that writes counts.
                if one.writes && !known.writes {
                    known.writes = true;
                    known.access_mode.clone_from(&one.access_mode);
                }
                continue;
            }
            let user = User {
                job: one.job.clone(),
                writes: one.writes,
                access_mode: one.access_mode.clone(),
                attachment_mode: one.attachment_mode.clone(),
            };
            users.insert(alloc_id.to_owned(), user);
            self.count(node_id, &one.key, true);
        }
    }

    /// It takes no resources any more.
    pub fn remove_user(&mut self, alloc_id: &str, node_id: &str, uses: &[VolumeUse]) {
        for one in uses {
            let Some(users) = self.users.get_mut(&one.key) else {
                continue;
            };
            let known = Arc::make_mut(users).remove(alloc_id).is_some();
            if users.is_empty() {
                self.users.remove(&one.key);
            }
            if known {
                self.count(node_id, &one.key, false);
            }
        }
    }

    fn count(&mut self, node_id: &str, key: &VolumeKey, adds: bool) {
        if node_id.is_empty() || matches!(key, VolumeKey::Host(..)) {
            return;
        }
        let place = (node_id.to_owned(), key.clone());
        let count = self.on_node.get(&place).copied().unwrap_or(0);
        match if adds {
            count + 1
        } else {
            count.saturating_sub(1)
        } {
            0 => drop(self.on_node.remove(&place)),
            count => drop(self.on_node.insert(place, count)),
        }
    }

    /// The CSI volumes of a plugin that are on a node, or will be.
    pub fn of_plugin_on(&self, node_id: &str, plugin_id: &str) -> Vec<&VolumeKey> {
        let first = VolumeKey::Csi(String::new(), String::new());
        let from = (node_id.to_owned(), first);
        let here = self.on_node.range(from..);
        let here = here.take_while(|((node, _), _)| node == node_id);
        let of_plugin = |key: &&VolumeKey| {
            let facts = self.csi.get(*key);
            facts.is_some_and(|facts| facts.plugin_id == plugin_id)
        };
        here.map(|((_, key), _)| key).filter(of_plugin).collect()
    }

    /// Whether claims on a volume can be served now.
    pub fn is_usable(&self, facts: &CsiFacts) -> bool {
        can_use(self.plugins.get(&facts.plugin_id), facts)
    }

    /// Whether an allocation of a job may claim a CSI volume so beside all others, those of plans
    /// in flight among them. What the same job holds never stands in its way: it lets go of it for
    /// the new version (CSI-30).
    ///
    /// # Errors
    /// Why not.
    pub fn claimable<'a>(
        &self,
        wanted: &VolumeUse,
        in_flight: impl Iterator<Item = &'a VolumeUse>,
    ) -> Result<(), Denied> {
        let facts = self.csi.get(&wanted.key).ok_or(Denied::Unusable)?;
        let mode = wanted.access_mode.as_str();
        let is_wanted = |(access, attachment): &(String, String)| {
            access == mode && *attachment == wanted.attachment_mode
        };
        let offered = facts.modes.is_empty() || facts.modes.iter().any(is_wanted);
        if !self.is_usable(facts) || !offered {
            return Err(Denied::Unusable);
        }
        let mut others = Others::default();
        let users = self.users.get(&wanted.key);
        let user = |alloc: &str| users.and_then(|users| users.get(alloc));
        for holder in &facts.holders {
            let live = user(&holder.alloc_id);
            let job = live.map(|user| &user.job).or(holder.job.as_ref());
            if job != Some(&wanted.job) {
                let used_as = match holder.access_mode.as_str() {
                    "" => &facts.access_mode,
                    own => own,
                };
                others.add(holder.writes, (used_as, &holder.attachment_mode));
                match job {
                    Some(_) => others.known = true,
                    None => others.gone.push(&holder.alloc_id),
                }
            }
        }
        let held = |alloc: &String| facts.holders.iter().any(|one| one.alloc_id == *alloc);
        for (alloc, user) in users.into_iter().flat_map(|users| users.iter()) {
            if user.job != wanted.job && !held(alloc) {
                others.add(user.writes, (&user.access_mode, &user.attachment_mode));
                others.known = true;
            }
        }
        for one in in_flight.filter(|one| one.key == wanted.key && one.job != wanted.job) {
            others.add(one.writes, (&one.access_mode, &one.attachment_mode));
            others.known = true;
        }
        others.allow(wanted)
    }

    /// The allocations that write a volume.
    pub fn writers(&self, key: &VolumeKey) -> impl Iterator<Item = &str> {
        let users = self.users.get(key);
        let users = users.into_iter().flat_map(|users| users.iter());
        users
            .filter(|(_, user)| user.writes)
            .map(|(alloc, _)| alloc.as_str())
    }
}

/// Whether a plugin serves claims on a volume of its now.
fn can_use(plugin: Option<&PluginFacts>, facts: &CsiFacts) -> bool {
    let serves = plugin.is_some_and(|plugin| {
        let required = plugin.controller_required;
        let required = required.unwrap_or(facts.controller_required);
        plugin.nodes > 0 && (!required || plugin.controllers > 0)
    });
    serves && !facts.exhausted
}

/// What others than a job do with a volume.
#[derive(Default)]
struct Others<'a> {
    readers: usize,
    writers: usize,
    modes: BTreeSet<&'a str>,
    /// How it is attached for them: for all at once it is in one way only.
    attached: BTreeSet<&'a str>,
    /// Allocations that are gone and still hold it.
    gone: Vec<&'a str>,
    /// Some allocations that hold it are not gone.
    known: bool,
}

impl<'a> Others<'a> {
    fn add(&mut self, writes: bool, (mode, attachment): (&'a str, &'a str)) {
        match writes {
            true => self.writers += 1,
            false => self.readers += 1,
        }
        self.modes.insert(mode);
        if !attachment.is_empty() {
            self.attached.insert(attachment);
        }
    }

    fn allow(&self, wanted: &VolumeUse) -> Result<(), Denied> {
        let allows = |mode: &&str| has_capacity(mode, wanted.writes, self.readers, self.writers);
        let mut attached = self.attached.iter();
        let alike = attached.all(|attached| *attached == wanted.attachment_mode);
        if alike && self.modes.iter().all(allows) && allows(&wanted.access_mode.as_str()) {
            return Ok(());
        }
        match self.gone.first() {
            Some(gone) if !self.known => Err(Denied::Left((*gone).to_owned())),
            _ if self.readers + self.writers == 0 => Err(Denied::Unusable),
            _ => Err(Denied::InUse),
        }
    }
}

/// Whether a place that a plugin says a node has is one of those a volume can be reached at.
pub fn reaches(topologies: &[CsiTopology], accessible: Option<&CsiTopology>) -> bool {
    let within = |wanted: &CsiTopology| {
        let has = |(key, value): (&String, &String)| {
            accessible.and_then(|a| a.segments.get(key)) == Some(value)
        };
        wanted.segments.iter().all(has)
    };
    topologies.is_empty() || topologies.iter().any(within)
}

#[cfg(test)]
#[path = "volumes_test.rs"]
mod tests;
