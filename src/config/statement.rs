//! How a setting is stated: once, as a field of its block, in a line below its help text.
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
//! - The **kind of reading** follows `=>`: a function that lays what a file says over the field.
//!   Those of most settings are in [`kinds`](super::kinds): `set`, `switch`, `size`, `block`,
//!   `maybe`, `labelled` and others. A setting that is read otherwise names a function beside its
//!   block; `of Inner` then says which block is read within, if one is.
//! - The **class** says what a reload does. Without one it takes a restart. `[live]`: it is taken
//!   over; `[live by f]`: `f` takes over what of it can be. `[each]`: a block whose settings have
//!   classes of their own, and are named one by one where they differ. `[reported]`: no file says
//!   it.
//! - `shown "Name"` puts it into what `/v1/agent/self` shows, as it is or `by` a function of it;
//!   what has no such name is hidden. `shown ""` is for a block: its settings stand beside it.
//! - `off "what to do instead"`: nobody acts on it, so a file that changes it is refused. For a
//!   block this goes for all that is in it.
//!
//! What files of Nomad's may say and no field holds is stated below `also`: with a type
//! (`accept_backlog: u32 => set`) it is read and dropped; with the place of another setting
//! (`statsd_address = sinks => kept`) it is read onto that.
//!
//! From the statements follow the struct with its `Default`, reading and merging ([`lay`]), what a
//! reload takes over ([`take_over`]) and leaves ([`differences`]), what is shown ([`part`]), and
//! the list of all settings ([`stated`]), from which those that are refused are known.

use super::Config;
use super::read::BodyReader;
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// What a reload does to a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadClass {
    /// It counts from the next start on.
    Restart,
    /// It is taken over, or what of it can be.
    Live,
    /// A block whose settings have classes of their own.
    Each,
    /// Nothing: no file says it.
    Reported,
}

/// A setting or a block, as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// Its path in files, blocks joined by dots, labels left out.
    pub path: String,
    /// What it is for.
    pub help: String,
    /// What a reload does to it.
    pub class: ReloadClass,
    /// What to do instead, where nobody acts on it.
    pub refused: Option<&'static str>,
}

/// All settings and blocks; a block stands before what is in it.
pub fn stated() -> Vec<Stated> {
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
    pub(super) class: ReloadClass,
    /// What to do instead, where nobody acts on it.
    pub(super) refused: Option<&'static str>,
    /// Lays what a file says under the name over it.
    pub(super) read: fn(&mut T, &str, &mut BodyReader<'_>),
    /// Names it, or what is in it, where two blocks differ.
    pub(super) differ: fn(&T, &T) -> Vec<String>,
    /// Takes over what of the second block's may change while the agent runs.
    pub(super) take: fn(&mut T, &T),
    /// Its name among what is shown.
    pub(super) shown: Option<&'static str>,
    /// What is shown.
    pub(super) value: fn(&T) -> Value,
    /// What can be said in it.
    pub(super) within: fn() -> Vec<Stated>,
}

/// Lays what a file says over a block: scalars are replaced, lists grow, maps merge.
pub(super) fn lay<T: Block>(block: &mut T, r: &mut BodyReader<'_>) {
    for one in T::SETTINGS {
        (one.read)(block, one.name, r);
    }
}

/// Takes over what of another block's may change while the agent runs.
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

/// What is shown of a block.
pub(super) fn part<T: Block>(block: &T) -> Value {
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

/// What can be said in a block.
pub(super) fn list<T: Block>() -> Vec<Stated> {
    let mut all = Vec::new();
    for one in T::SETTINGS {
        let within = (one.within)();
        if one.name.is_empty() {
            all.extend(within);
            continue;
        }
        all.push(Stated {
            path: one.name.to_owned(),
            help: one.help.trim().to_owned(),
            class: one.class,
            refused: one.refused,
        });
        all.extend(within.into_iter().map(|inner| Stated {
            path: format!("{}.{}", one.name, inner.path),
            ..inner
        }));
    }
    all
}

/// The same of a block that may be absent.
pub(super) fn list_of_maybe<T: Block>(_: PhantomData<Option<T>>) -> Vec<Stated> {
    list::<T>()
}

/// The same of blocks with labels.
pub(super) fn list_of_labelled<T: Block>(
    _: PhantomData<std::collections::BTreeMap<String, T>>,
) -> Vec<Stated> {
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

/// States a block: see [the module](self). Rules that begin with `@` write parts of one setting.
macro_rules! settings {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };

    (@maybe) => { None };
    (@maybe $some:expr) => { Some($some) };

    (@class) => { $crate::statement::ReloadClass::Restart };
    (@class live $(by $take:ident)?) => { $crate::statement::ReloadClass::Live };
    (@class each) => { $crate::statement::ReloadClass::Each };
    (@class reported) => { $crate::statement::ReloadClass::Reported };

    (@take $field:ident live) => { |it, other| it.$field.clone_from(&other.$field) };
    (@take $field:ident live by $take:ident) => {
        |it, other| $take(&mut it.$field, &other.$field)
    };
    (@take $field:ident each) => {
        |it, other| $crate::statement::take_over(&mut it.$field, &other.$field)
    };
    (@take $field:ident $($class:ident)?) => { |_, _| {} };

    (@differ $field:ident reported) => { |_, _| Vec::new() };
    (@differ $field:ident each) => {
        |it, other| {
            let inner = $crate::statement::differences(&it.$field, &other.$field);
            let inner = inner.into_iter();
            inner.map(|name| format!(concat!(stringify!($field), ".{}"), name)).collect()
        }
    };
    (@differ $field:ident $($class:ident)*) => {
        |it, other| {
            let name = stringify!($field);
            $crate::statement::unequal(name, &it.$field, &other.$field)
        }
    };

    (@value $field:ident) => { |_| serde_json::Value::Null };
    (@value $field:ident $shown:literal) => {
        |it| $crate::statement::json(&it.$field)
    };
    (@value $field:ident $shown:literal by $by:ident) => { |it| $by(&it.$field) };

    (@within $how:ident, $kind:ty, $of:ident) => { $crate::statement::list::<$of> };
    (@within block, $kind:ty) => { $crate::statement::list::<$kind> };
    (@within flat, $kind:ty) => { $crate::statement::list::<$kind> };
    (@within afresh, $kind:ty) => { $crate::statement::list::<$kind> };
    (@within maybe, $kind:ty) => {
        || $crate::statement::list_of_maybe(std::marker::PhantomData::<$kind>)
    };
    (@within labelled, $kind:ty) => {
        || $crate::statement::list_of_labelled(std::marker::PhantomData::<$kind>)
    };
    (@within $how:ident, $kind:ty) => { Vec::new };

    (@inner) => { Vec::new };
    (@inner $of:ident) => { $crate::statement::list::<$of> };

    (@also $how:ident, = $place:ident $(. $inner:ident)*) => {
        |it, name, r| $how(&mut it.$place $(. $inner)*, name, r)
    };
    (@also $how:ident, $kind:ty) => {
        |_, name, r| $how(&mut <$kind>::default(), name, r)
    };

    (
        $(#[$about:meta])*
        $vis:vis struct $block:ident {
            $(
                $(#[doc = $help:literal])+
                $seen:vis $field:ident: $kind:ty $(= $default:expr)? => $how:ident
                $(of $of:ident)? $(named $name:literal)? $([$($class:ident)+])?
                $(shown $shown:literal $(by $by:ident)?)? $(off $advice:expr)?,
            )*
        }
        $(also {
            $(
                $(#[doc = $also_help:literal])+
                $also:ident $(: $also_kind:ty)? $(= $place:ident $(. $inner:ident)*)?
                => $also_how:ident
                $(of $also_of:ident)? $(named $also_name:literal)? $(off $also_advice:expr)?,
            )*
        })?
    ) => {
        $(#[$about])*
        $vis struct $block {
            $($(#[doc = $help])+ $seen $field: $kind,)*
        }

        impl Default for $block {
            fn default() -> Self {
                Self { $($field: settings!(@default $($default)?),)* }
            }
        }

        impl $crate::statement::Block for $block {
            const SETTINGS: &'static [$crate::statement::Setting<Self>] = &[
                $($crate::statement::Setting::<Self> {
                    name: settings!(@name $field $($name)?),
                    help: concat!($($help),+),
                    class: settings!(@class $($($class)+)?),
                    refused: settings!(@maybe $($advice)?),
                    read: |it, name, r| $how(&mut it.$field, name, r),
                    differ: settings!(@differ $field $($($class)+)?),
                    take: settings!(@take $field $($($class)+)?),
                    shown: settings!(@maybe $($shown)?),
                    value: settings!(@value $field $($shown $(by $by)?)?),
                    within: settings!(@within $how, $kind $(, $of)?),
                },)*
                $($($crate::statement::Setting::<Self> {
                    name: settings!(@name $also $($also_name)?),
                    help: concat!($($also_help),+),
                    class: $crate::statement::ReloadClass::Restart,
                    refused: settings!(@maybe $($also_advice)?),
                    read: settings!(
                        @also $also_how, $($also_kind)? $(= $place $(. $inner)*)?
                    ),
                    differ: |_, _| Vec::new(),
                    take: |_, _| {},
                    shown: None,
                    value: |_| serde_json::Value::Null,
                    within: settings!(@inner $($also_of)?),
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
    fn every_setting_has_a_help_text_a_name_of_its_own_and_a_class() {
        let all = stated();
        assert!(all.len() > 300, "{} are stated", all.len());
        let mut paths = BTreeSet::new();
        for one in &all {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
            assert!(
                !one.path.is_empty() && one.path.chars().all(plain),
                "{one:?}"
            );
            assert!(paths.insert(one.path.as_str()), "{one:?} is stated twice");
            assert!(one.help.len() > 1 && one.help.ends_with('.'), "{one:?}");
            assert_ne!(one.class, ReloadClass::Reported, "no file says {one:?}");
        }
        for (path, class) in [
            ("region", ReloadClass::Restart),
            ("log_level", ReloadClass::Live),
            ("log_json", ReloadClass::Restart),
            ("client", ReloadClass::Each),
            ("client.meta", ReloadClass::Live),
            ("client.options", ReloadClass::Live),
            ("client.host_volume.path", ReloadClass::Restart),
            ("client.drain_on_shutdown.deadline", ReloadClass::Restart),
            ("plugin.config.enabled", ReloadClass::Restart),
            ("telemetry.statsd_address", ReloadClass::Restart),
            ("tls", ReloadClass::Live),
        ] {
            let found = all.iter().find(|one| one.path == path);
            assert_eq!(found.map(|one| one.class), Some(class), "{path}");
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
    fn what_is_described_is_what_is_stated_as_shown() {
        let described = Config::dev().describe();
        for (block, stated) in [
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
            assert_eq!(names(&described[block]), stated, "{block}");
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
        let said = stated();
        let refused = |path: &str| super::super::advice(path).is_some();
        let leaves = said.iter().filter(|one| {
            let within = format!("{}.", one.path);
            !said.iter().any(|other| other.path.starts_with(&within)) && !refused(&one.path)
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
