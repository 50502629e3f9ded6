//! How a setting is declared: once, as a field of its block, in a line below its help text.
//!
//! **To add a setting** write that line into the block's [`settings!`]; nothing else names it:
//!
//! ```text
//! /// How long a client caches a token.
//! pub token_ttl: Duration = ACL_CACHE => set [live] shown "TokenTTL" by ns,
//! ```
//!
//! - The **help text** is the field's documentation.
//! - The **name** in files is the field's, unless `named "other"` follows the kind of reading.
//! - The **default** follows `=`; without one it is the type's own (false, 0, nothing).
//! - The **kind of reading** follows `=>`: a function that overlays the field with what a file
//!   says. Those of most settings are in [`kinds`](super::kinds):
//!   - `set`: a scalar is replaced, a list grows, a map merges.
//!   - `switch`: a boolean; no later file turns it off.
//!   - `size`: a number of bytes, which may have a unit: `512M`.
//!   - `above_zero`, `size_above_zero`: a value or a size that means no limit where it is 0.
//!   - `block`: a nested block, read onto what earlier files set.
//!   - `reset`: a nested block that starts from its defaults in each file that has it.
//!   - `maybe`: a nested block that may be absent.
//!   - `labelled`: nested blocks with labels, by their label.
//!   - `inline`: a block whose settings stand beside those of the block around it.
//!   - `kept`: a value that is stored in a map, under its name in files.
//!   - `unread`: not read here: no file says it, or another setting reads it.
//!
//!   A setting that is read otherwise names a function beside its block; `of Inner` then says which
//!   block is nested in it, if one is.
//! - The **reload mode** says what a reload does. Without one it takes a restart. `[live]`: it is
//!   taken over; `[live by f]`: `f` takes over the part that can change. `[per_setting]`: each
//!   setting of the block has a mode of its own, and differences are listed setting by setting.
//!   `[computed]`: no file says it.
//! - `shown "Name"` puts it into what `/v1/agent/self` shows, as it is or `by` a function of it:
//!   `ns` shows a time in nanoseconds. What has no such name is hidden. `shown ""` is for a block:
//!   its settings stand beside it.
//! - `unsupported "what to do instead"`: nothing acts on it, so a file that changes it is refused.
//!   For a block this goes for all that is in it.
//!
//! Settings of Nomad that have no field here are declared below `compat`. `name: Type => kind`
//! parses the value and drops it (`accept_backlog: u32 => set`). `name = other_field => kind`
//! stores it in `other_field`: `statsd_address = sinks => kept` adds it to the map `sinks` under
//! its name.
//!
//! From the declarations follow the struct with its `Default`, reading and merging ([`overlay`]),
//! what a reload takes over ([`take_over`]) and leaves ([`differences`]), what is shown
//! ([`block_to_json`]), and the list of all settings ([`all_settings`]), from which those that are
//! refused are known.

use super::Config;
use super::read::BodyReader;
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// What a reload does to a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadMode {
    /// It counts from the next start on.
    Restart,
    /// It is taken over, or the part that can change.
    Live,
    /// A block whose settings have modes of their own.
    PerSetting,
    /// Nothing: no file says it.
    Computed,
}

/// A setting or a block, as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingInfo {
    /// Its path in files, blocks joined by dots, labels left out.
    pub path: String,
    /// What it is for.
    pub help: String,
    /// What a reload does to it.
    pub reload_mode: ReloadMode,
    /// What to do instead, where nothing acts on it.
    pub unsupported_advice: Option<&'static str>,
}

/// All settings and blocks; a block stands before what is in it.
pub fn all_settings() -> Vec<SettingInfo> {
    list::<Config>()
}

/// A block: its settings.
pub(super) trait Block: Default + 'static {
    /// In the order in which they are read and named.
    const SETTINGS: &'static [Setting<Self>];
}

/// A setting of the block `T`, as [`settings!`] writes it.
pub(super) struct Setting<T> {
    /// Its name in files; none where its own settings stand in its place.
    pub(super) name: &'static str,
    /// As it is written above the field.
    pub(super) help: &'static str,
    pub(super) reload_mode: ReloadMode,
    /// What to do instead, where nothing acts on it.
    pub(super) unsupported_advice: Option<&'static str>,
    /// Overlays it with what a file says under the name.
    pub(super) read: fn(&mut T, &str, &mut BodyReader<'_>),
    /// Names it, or what is in it, where two blocks differ.
    pub(super) differ: fn(&T, &T) -> Vec<String>,
    /// Takes over from the second block what may change while the agent runs.
    pub(super) take: fn(&mut T, &T),
    /// Its name among what is shown.
    pub(super) shown: Option<&'static str>,
    /// What is shown.
    pub(super) value: fn(&T) -> Value,
    /// The settings nested in it.
    pub(super) nested: fn() -> Vec<SettingInfo>,
}

/// Overlays a block with what a file says: scalars are replaced, lists grow, maps merge.
pub(super) fn overlay<T: Block>(block: &mut T, r: &mut BodyReader<'_>) {
    for one in T::SETTINGS {
        (one.read)(block, one.name, r);
    }
}

/// Takes over from another block what may change while the agent runs.
pub(super) fn take_over<T: Block>(block: &mut T, other: &T) {
    for one in T::SETTINGS {
        (one.take)(block, other);
    }
}

/// The names of the settings that differ.
pub(super) fn differences<T: Block>(block: &T, other: &T) -> Vec<String> {
    let settings = T::SETTINGS.iter();
    settings
        .flat_map(|one| (one.differ)(block, other))
        .collect()
}

/// What is shown of a block, as JSON.
pub(super) fn block_to_json<T: Block>(block: &T) -> Value {
    let mut all = Map::new();
    for one in T::SETTINGS {
        let Some(name) = one.shown else { continue };
        match (name, (one.value)(block)) {
            ("", Value::Object(beside)) => all.extend(beside),
            (name, value) => _ = all.insert(name.to_owned(), value),
        }
    }
    Value::Object(all)
}

/// The settings of a block.
pub(super) fn list<T: Block>() -> Vec<SettingInfo> {
    let mut all = Vec::new();
    for one in T::SETTINGS {
        let nested = (one.nested)();
        if one.name.is_empty() {
            all.extend(nested);
            continue;
        }
        all.push(SettingInfo {
            path: one.name.to_owned(),
            help: one.help.trim().to_owned(),
            reload_mode: one.reload_mode,
            unsupported_advice: one.unsupported_advice,
        });
        all.extend(nested.into_iter().map(|inner| SettingInfo {
            path: format!("{}.{}", one.name, inner.path),
            ..inner
        }));
    }
    all
}

/// The same of a block that may be absent.
pub(super) fn list_of_maybe<T: Block>(_: PhantomData<Option<T>>) -> Vec<SettingInfo> {
    list::<T>()
}

/// The same of blocks with labels.
pub(super) fn list_of_labelled<T: Block>(
    _: PhantomData<std::collections::BTreeMap<String, T>>,
) -> Vec<SettingInfo> {
    list::<T>()
}

/// A setting's name, if it differs.
pub(super) fn unequal<V: PartialEq>(name: &str, one: &V, other: &V) -> Vec<String> {
    match one == other {
        true => Vec::new(),
        false => vec![name.to_owned()],
    }
}

/// A setting as it is.
pub(super) fn json<V: serde::Serialize>(value: &V) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Declares a block: see [the module](self). Rules that begin with `@` write parts of one setting.
macro_rules! settings {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };

    (@maybe) => { None };
    (@maybe $some:expr) => { Some($some) };

    (@reload_mode) => { $crate::settings::ReloadMode::Restart };
    (@reload_mode live $(by $take:ident)?) => { $crate::settings::ReloadMode::Live };
    (@reload_mode per_setting) => { $crate::settings::ReloadMode::PerSetting };
    (@reload_mode computed) => { $crate::settings::ReloadMode::Computed };

    (@take $field:ident live) => { |it, other| it.$field.clone_from(&other.$field) };
    (@take $field:ident live by $take:ident) => {
        |it, other| $take(&mut it.$field, &other.$field)
    };
    (@take $field:ident per_setting) => {
        |it, other| $crate::settings::take_over(&mut it.$field, &other.$field)
    };
    (@take $field:ident $($mode:ident)?) => { |_, _| {} };

    (@differ $field:ident computed) => { |_, _| Vec::new() };
    (@differ $field:ident per_setting) => {
        |it, other| {
            let inner = $crate::settings::differences(&it.$field, &other.$field);
            let inner = inner.into_iter();
            inner.map(|name| format!(concat!(stringify!($field), ".{}"), name)).collect()
        }
    };
    (@differ $field:ident $($mode:ident)*) => {
        |it, other| {
            let name = stringify!($field);
            $crate::settings::unequal(name, &it.$field, &other.$field)
        }
    };

    (@value $field:ident) => { |_| serde_json::Value::Null };
    (@value $field:ident $shown:literal) => {
        |it| $crate::settings::json(&it.$field)
    };
    (@value $field:ident $shown:literal by $by:ident) => { |it| $by(&it.$field) };

    (@nested $how:ident, $kind:ty, $of:ident) => { $crate::settings::list::<$of> };
    (@nested block, $kind:ty) => { $crate::settings::list::<$kind> };
    (@nested inline, $kind:ty) => { $crate::settings::list::<$kind> };
    (@nested reset, $kind:ty) => { $crate::settings::list::<$kind> };
    (@nested maybe, $kind:ty) => {
        || $crate::settings::list_of_maybe(std::marker::PhantomData::<$kind>)
    };
    (@nested labelled, $kind:ty) => {
        || $crate::settings::list_of_labelled(std::marker::PhantomData::<$kind>)
    };
    (@nested $how:ident, $kind:ty) => { Vec::new };

    (@inner) => { Vec::new };
    (@inner $of:ident) => { $crate::settings::list::<$of> };

    (@compat $how:ident, = $place:ident $(. $inner:ident)*) => {
        |it, name, r| $how(&mut it.$place $(. $inner)*, name, r)
    };
    (@compat $how:ident, $kind:ty) => {
        |_, name, r| $how(&mut <$kind>::default(), name, r)
    };

    (
        $(#[$about:meta])*
        $vis:vis struct $block:ident {
            $(
                $(#[doc = $help:literal])+
                $field_vis:vis $field:ident: $kind:ty $(= $default:expr)? => $how:ident
                $(of $of:ident)? $(named $name:literal)? $([$($mode:ident)+])?
                $(shown $shown:literal $(by $by:ident)?)? $(unsupported $advice:expr)?,
            )*
        }
        $(compat {
            $(
                $(#[doc = $compat_help:literal])+
                $compat:ident $(: $compat_kind:ty)? $(= $place:ident $(. $inner:ident)*)?
                => $compat_how:ident
                $(of $compat_of:ident)? $(named $compat_name:literal)?
                $(unsupported $compat_advice:expr)?,
            )*
        })?
    ) => {
        $(#[$about])*
        $vis struct $block {
            $($(#[doc = $help])+ $field_vis $field: $kind,)*
        }

        impl Default for $block {
            fn default() -> Self {
                Self { $($field: settings!(@default $($default)?),)* }
            }
        }

        impl $crate::settings::Block for $block {
            const SETTINGS: &'static [$crate::settings::Setting<Self>] = &[
                $($crate::settings::Setting::<Self> {
                    name: settings!(@name $field $($name)?),
                    help: concat!($($help),+),
                    reload_mode: settings!(@reload_mode $($($mode)+)?),
                    unsupported_advice: settings!(@maybe $($advice)?),
                    read: |it, name, r| $how(&mut it.$field, name, r),
                    differ: settings!(@differ $field $($($mode)+)?),
                    take: settings!(@take $field $($($mode)+)?),
                    shown: settings!(@maybe $($shown)?),
                    value: settings!(@value $field $($shown $(by $by)?)?),
                    nested: settings!(@nested $how, $kind $(, $of)?),
                },)*
                $($($crate::settings::Setting::<Self> {
                    name: settings!(@name $compat $($compat_name)?),
                    help: concat!($($compat_help),+),
                    reload_mode: $crate::settings::ReloadMode::Restart,
                    unsupported_advice: settings!(@maybe $($compat_advice)?),
                    read: settings!(
                        @compat $compat_how, $($compat_kind)? $(= $place $(. $inner)*)?
                    ),
                    differ: |_, _| Vec::new(),
                    take: |_, _| {},
                    shown: None,
                    value: |_| serde_json::Value::Null,
                    nested: settings!(@inner $($compat_of)?),
                },)*)?
            ];
        }
    };
}
pub(super) use settings;

#[cfg(test)]
mod tests {
    use super::super::{
        AclConfig, AutopilotConfig, ClientConfig, LimitsConfig, LogSettings, Ports, ServerConfig,
        TelemetryConfig, TlsConfig, UiConfig,
    };
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_setting_has_a_help_text_a_name_of_its_own_and_a_reload_mode() {
        let all = all_settings();
        assert!(all.len() > 300, "{} are declared", all.len());
        let mut paths = BTreeSet::new();
        for one in &all {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
            assert!(
                !one.path.is_empty() && one.path.chars().all(plain),
                "{one:?}"
            );
            assert!(paths.insert(one.path.as_str()), "{one:?} is declared twice");
            assert!(one.help.len() > 1 && one.help.ends_with('.'), "{one:?}");
            assert_ne!(
                one.reload_mode,
                ReloadMode::Computed,
                "no file says {one:?}"
            );
        }
        for (path, mode) in [
            ("region", ReloadMode::Restart),
            ("log_level", ReloadMode::Live),
            ("log_json", ReloadMode::Restart),
            ("client", ReloadMode::PerSetting),
            ("client.meta", ReloadMode::Live),
            ("client.options", ReloadMode::Live),
            ("client.host_volume.path", ReloadMode::Restart),
            ("client.drain_on_shutdown.deadline", ReloadMode::Restart),
            ("plugin.config.enabled", ReloadMode::Restart),
            ("telemetry.statsd_address", ReloadMode::Restart),
            ("tls", ReloadMode::Live),
        ] {
            let found = all.iter().find(|one| one.path == path);
            assert_eq!(found.map(|one| one.reload_mode), Some(mode), "{path}");
        }
        let help = "How long a client caches a token.";
        assert!(all.iter().any(|one| one.help == help), "as it is written");
    }

    fn shown<T: Block>() -> BTreeSet<&'static str> {
        T::SETTINGS.iter().filter_map(|one| one.shown).collect()
    }

    fn names(block: &Value) -> BTreeSet<&str> {
        let block = block.as_object().expect("a block");
        block.keys().map(String::as_str).collect()
    }

    #[test]
    fn exactly_the_settings_with_a_shown_name_are_described() {
        let described = Config::dev().describe();
        for (block, declared) in [
            ("ACL", shown::<AclConfig>()),
            ("Autopilot", shown::<AutopilotConfig>()),
            ("Client", shown::<ClientConfig>()),
            ("Limits", shown::<LimitsConfig>()),
            ("Ports", shown::<Ports>()),
            ("Server", shown::<ServerConfig>()),
            ("TLSConfig", shown::<TlsConfig>()),
            ("Telemetry", shown::<TelemetryConfig>()),
            ("UI", shown::<UiConfig>()),
        ] {
            assert_eq!(names(&described[block]), declared, "{block}");
        }
        // Those of the log stand beside the blocks; what follows from several settings is added.
        let mut top = shown::<Config>();
        assert!(top.remove(""));
        top.extend(shown::<LogSettings>());
        top.extend(["Addresses", "AdvertiseAddrs", "NodeName"]);
        assert_eq!(names(&described), top);
        assert_eq!(described["LogLevel"], "DEBUG");
        assert_eq!(described["ACL"]["TokenTTL"], 30_000_000_000_u64);
        assert_eq!(described["Limits"]["HTTPMaxConnsPerClient"], 100);
        assert_eq!(described["Telemetry"]["CollectionInterval"], "1s");
        assert_eq!(described["Audit"]["DeliveryGuarantee"], "best-effort");
    }

    #[test]
    fn all_that_is_not_refused_in_a_block_can_be_said_in_a_file() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("agent.json");
        let all = all_settings();
        let refused = |path: &str| super::super::advice(path).is_some();
        let leaves = all.iter().filter(|one| {
            let within = format!("{}.", one.path);
            !all.iter().any(|other| other.path.starts_with(&within)) && !refused(&one.path)
        });
        // What is in blocks with labels has other places in a file.
        let labelled = ["plugin.", "client.host_volume.", "audit.sink."];
        let leaves = leaves.filter(|one| !labelled.iter().any(|block| one.path.starts_with(block)));
        for one in leaves {
            let around = |inner: String, name: &str| format!("{{ {name:?}: {inner} }}");
            let nested = one.path.rsplit('.').fold("null".to_owned(), around);
            std::fs::write(&path, nested).expect("written");
            let loaded = super::super::load(&mut Config::default(), std::slice::from_ref(&path));
            assert!(loaded.is_ok(), "{}: {loaded:?}", one.path);
        }
    }
}
