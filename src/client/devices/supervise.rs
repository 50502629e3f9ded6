//! Keeps a plugin running: one process after the other, each after a longer wait than the one
//! before, until one stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_config::PluginConfig;
use drover_plugins::{Plugin, schema};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::start::{Started, end_run};
use super::{Devices, END, JournaledPlugin, describe, key};

/// The first wait after a process that ended, and the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// A process that lived so long did well.
const WELL: Duration = Duration::from_secs(30);

/// Why a process is no more.
struct Over {
    why: String,
    /// Another would be of no more use.
    for_good: bool,
}

impl From<String> for Over {
    fn from(why: String) -> Self {
        Self {
            why,
            for_good: false,
        }
    }
}

impl From<drover_plugins::CallError> for Over {
    fn from(error: drover_plugins::CallError) -> Self {
        error.to_string().into()
    }
}

/// It is of no use here.
fn useless(why: impl Into<String>) -> Over {
    Over {
        why: why.into(),
        for_good: true,
    }
}

impl Devices {
    /// Runs a plugin until the agent ends, or it turns out to be none of devices.
    pub(super) async fn follow(self: Arc<Self>, name: String, file: PathBuf) {
        let mut wait = FIRST;
        loop {
            let begun = Instant::now();
            let over = {
                let mut run = std::pin::pin!(self.run(&name, &file));
                tokio::select! {
                    over = &mut run => over,
                    () = self.ends() => {
                        self.ask_to_end(&name).await;
                        // What does not go by itself goes when this is dropped.
                        let _ = timeout(END, run).await;
                        return;
                    }
                }
            };
            if over.for_good {
                tracing::error!(plugin = name, "it is not used: {}", over.why);
                return self.forget(&name).await;
            }
            self.lost(&name);
            if begun.elapsed() > WELL {
                wait = FIRST;
            }
            tracing::warn!(
                plugin = name,
                "it is started again in {wait:?}: {}",
                over.why
            );
            tokio::select! {
                () = sleep(wait) => {}
                () = self.ends() => return,
            }
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// One process of a plugin, to its end.
    async fn run(&self, name: &str, file: &Path) -> Over {
        match self.try_run(name, file).await {
            Ok(never) => match never {},
            Err(over) => over,
        }
    }

    async fn try_run(&self, name: &str, file: &Path) -> Result<std::convert::Infallible, Over> {
        let run_id = self.new_run(name).await?;
        let config: PluginConfig = self.configs.get(name).cloned().unwrap_or_default();
        let mut started = Started::begin((name, file), &config, &self.env, &run_id).await?;
        let address = started.address().await?;
        let plugin = Plugin::at(address);
        let info = plugin.info().await?;
        if !info.has_devices {
            return Err(useless("it is no plugin of devices"));
        }
        if !info.understood {
            return Err(useless(
                "it speaks no version of the calls that is known here",
            ));
        }
        let form = plugin.schema().await?;
        let settings = schema::encoded(form.as_ref(), &Value::Object(config.config));
        if let Some(settings) = settings? {
            plugin.configure(settings).await?;
        }
        tracing::info!(
            plugin = name,
            version = info.version,
            "a plugin of devices runs"
        );
        let mut reported = plugin.fingerprint().await?;
        let mut figures = std::pin::pin!(self.measured(name, &plugin));
        loop {
            let message = tokio::select! {
                message = reported.message() => message,
                how = started.ended() => return Err(how.into()),
                () = &mut figures => continue,
            };
            let Some(message) =
                message.map_err(|status| drover_plugins::CallError::of("Fingerprint", &status))?
            else {
                return Err("it reports its devices no more".to_owned().into());
            };
            let groups = describe::groups(message)?;
            let kept = JournaledPlugin {
                run_id: run_id.clone(),
                groups,
            };
            self.keep_known(name, kept, Some(&plugin)).await?;
        }
    }

    /// Takes in what a plugin measures, for ever.
    async fn measured(&self, name: &str, plugin: &Plugin) {
        let mut wait = FIRST;
        loop {
            let over = match plugin.stats(self.interval).await {
                Ok(mut stream) => loop {
                    match stream.message().await {
                        Ok(Some(reported)) => {
                            wait = FIRST;
                            if let Some(known) = self.known.lock().get_mut(name) {
                                known.figures = describe::figures(reported);
                            }
                        }
                        Ok(None) => break "it is over".to_owned(),
                        Err(status) => break status.message().to_owned(),
                    }
                },
                Err(error) => error.to_string(),
            };
            tracing::debug!(plugin = name, "statistics: {over}");
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// Ends what is left of former processes of a plugin, and gives the next run an id.
    async fn new_run(&self, name: &str) -> Result<String, String> {
        let mut kept = {
            let mut known = self.known.lock();
            known.entry(name.to_owned()).or_default().kept.clone()
        };
        if !kept.run_id.is_empty() {
            end_run(&kept.run_id).await?;
        }
        let run_id = uuid::Uuid::new_v4().to_string();
        kept.run_id.clone_from(&run_id);
        self.keep_known(name, kept, None).await?;
        Ok(run_id)
    }

    /// Knows this of a plugin, and remembers it.
    pub(super) async fn keep_known(
        &self,
        name: &str,
        kept: JournaledPlugin,
        live: Option<&Plugin>,
    ) -> Result<(), String> {
        let bytes = rmp_serde::to_vec_named(&kept).map_err(|error| error.to_string())?;
        let written = self.journal.put(&key(name), bytes);
        {
            let mut known = self.known.lock();
            let known = known.entry(name.to_owned()).or_default();
            known.kept = kept;
            known.live = live.cloned();
        }
        self.describe();
        written.await.map_err(|error| error.to_string())
    }

    /// A plugin does not run: its devices cannot be used.
    fn lost(&self, name: &str) {
        {
            let mut known = self.known.lock();
            let known = known.entry(name.to_owned()).or_default();
            known.live = None;
            known.figures.clear();
            for group in &mut known.kept.groups {
                for device in group.instances.to_mut() {
                    device.healthy = false;
                    device.health_description = format!("plugin {name:?} does not run");
                }
            }
        }
        self.describe();
    }

    /// Waits for the end of the agent.
    async fn ends(&self) {
        // The sender is part of this very value.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    async fn ask_to_end(&self, name: &str) {
        let live = self.known.lock().get(name).and_then(|one| one.live.clone());
        if let Some(live) = live {
            // One that does not answer is killed.
            let _ = timeout(END, live.shutdown()).await;
        }
    }

    /// Knows nothing of a plugin any more, and ends what is left of it.
    pub(super) async fn forget(&self, name: &str) {
        let known = self.known.lock().remove(name);
        let run_id = known.map(|known| known.kept.run_id).unwrap_or_default();
        if !run_id.is_empty()
            && let Err(why) = end_run(&run_id).await
        {
            tracing::warn!(plugin = name, "{why}");
        }
        self.describe();
        if let Err(error) = self.journal.delete(&key(name)).await {
            tracing::warn!(plugin = name, "{error}");
        }
    }
}
