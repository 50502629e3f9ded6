use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::*;
use crate::event::Event;
use crate::kind::EventKind;
use crate::model;

/// Reads any type and notes each struct it meets: its name and its fields.
#[derive(Default)]
struct Structs(BTreeMap<&'static str, &'static [&'static str]>);

impl Structs {
    /// Every struct below an event, and those of the model that are in none.
    fn of_the_model() -> Self {
        let mut found = Self::default();
        for kind in EventKind::ALL.iter().filter(|kind| !kind.is_raft_own()) {
            Event::deserialize_payload(*kind, &mut found).expect("any type can be read");
        }
        found.read::<model::VariableDecrypted>();
        found.read::<model::PlanAnnotations>();
        found.read::<model::JobDiff>();
        found.read::<model::CsiSnapshot>();
        found.read::<model::CsiVolumeExternalStub>();
        found.read::<model::CheckQueryResult>();
        found
    }

    fn read<T: for<'de> Deserialize<'de>>(&mut self) {
        T::deserialize(self).expect("any type can be read");
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.visit_u64(0)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Structs {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(false)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(0)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(0)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(0.0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("")
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(&[])
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(One(self, true, &[]))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(One(self, true, &[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let known = self.0.insert(name, fields).is_some();
        visitor.visit_map(One(self, false, if known { &[] } else { fields }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(variants[0].into_deserializer())
    }

    forward_to_deserialize_any! { unit unit_struct newtype_struct tuple tuple_struct ignored_any }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("")
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char('a')
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(&[])
    }

    numbers! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_i8 deserialize_i16
        deserialize_i32 deserialize_f32
    }
}

/// One element or entry, or the fields of a struct.
struct One<'s>(&'s mut Structs, bool, &'static [&'static str]);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if !std::mem::take(&mut self.1) {
            return Ok(None);
        }
        seed.deserialize(&mut *self.0).map(Some)
    }
}

impl<'de> MapAccess<'de> for One<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if std::mem::take(&mut self.1) {
            return seed.deserialize(&mut *self.0).map(Some);
        }
        let Some((first, rest)) = self.2.split_first() else {
            return Ok(None);
        };
        self.2 = rest;
        seed.deserialize((*first).into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.0)
    }
}

#[test]
fn the_list_is_in_order_and_speaks_of_the_model() {
    assert!(LISTED.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let model = Structs::of_the_model().0;
    assert!(model.len() > 150, "{} structs", model.len());
    for (name, classes) in LISTED {
        let fields = model
            .get(name)
            .unwrap_or_else(|| panic!("no struct {name}"));
        assert!(!classes.is_empty(), "{name} says no class");
        for (field, class) in *classes {
            assert!(fields.contains(field), "{name} has no {field}");
            let place = (Some((*name, *field)), *class);
            assert_eq!(Classes::of(name).place(field), place);
        }
    }
    assert_eq!(Classes::of("Nobody").place("Env"), (None, Class::Public));
    let found = |name| is_listed(name, &[("Env", Class::Sensitive)]);
    assert!(found("Task") && !found("Tas") && !found("Tasks"));
    assert!(is_listed("Nobody", &[]));
}

/// Whether a name is one that secrets have.
fn looks_secret(name: &str) -> bool {
    let parts = [
        "Secret",
        "Token",
        "Password",
        "Payload",
        "Credential",
        "Ciphertext",
        "PrivateKey",
        "PemKey",
        "Header",
        "Meta",
    ];
    let whole = [
        "Env",
        "Items",
        "Args",
        "Config",
        "Parameters",
        "Context",
        "EmbeddedTmpl",
        "Body",
        "Variables",
        "VariableFlags",
        "Source",
        "GetterSource",
        "GetterOptions",
        "LeaderACL",
    ];
    let names_a_file = name.ends_with("File") || name == "KeyIDHeader";
    whole.contains(&name) || (parts.iter().any(|part| name.contains(part)) && !names_a_file)
}

/// Containers whose own fields carry the classes.
const OPEN: [(&str, &str); 5] = [
    ("AclAuthMethod", "Config"),
    ("AutopilotConfigured", "Config"),
    ("SchedulerConfigured", "Config"),
    ("RootKeyUpserted", "RootKeyMeta"),
    ("VolumeRequest", "Source"),
];

#[test]
fn nothing_that_looks_like_a_secret_lacks_a_class() {
    for (name, fields) in Structs::of_the_model().0 {
        for field in fields.iter().filter(|field| looks_secret(field)) {
            let listed = Classes::of(name).place(field).0.is_some();
            let open = OPEN.contains(&(name, field)) || *field == "ScoreMetaData";
            assert!(listed || open, "{name}.{field} has no class");
        }
    }
}

/// What a job's specification says is shown to readers of the job, but for these.
#[test]
fn of_a_specification_environments_templates_and_credentials_alone_are_sensitive() {
    let mut job = Structs::default();
    job.read::<model::Job>();
    let mine = listed().filter(|(name, ..)| job.0.contains_key(name));
    let mut sensitive: Vec<String> = mine
        .filter(|(_, _, class)| *class == Class::Sensitive)
        .map(|(name, field, _)| format!("{name}.{field}"))
        .collect();
    sensitive.sort_unstable();
    assert_eq!(
        sensitive,
        [
            "ConsulHttpHeaderModifiers.Add",
            "ConsulHttpHeaderModifiers.Set",
            "CsiMountOptions.MountFlags",
            "Secret.Config",
            "Secret.Env",
            "ServiceCheck.Header",
            "SidecarTask.Env",
            "Task.Env",
            "TaskArtifact.GetterHeaders",
            "TaskArtifact.GetterOptions",
            "Template.EmbeddedTmpl",
        ]
    );
}

#[test]
fn debug_output_shows_no_value_that_has_a_class() {
    const CANARY: &str = "canary-7d1f";
    let token = model::AclToken {
        secret_id: CANARY.into(),
        name: "ci".into(),
        ..Default::default()
    };
    let task = model::Task {
        env: [("KEY", CANARY.to_owned())].into(),
        meta: [("owner", CANARY.to_owned())].into(),
        config: [("password", CANARY.into())].into(),
        templates: vec![model::Template {
            embedded_tmpl: CANARY.into(),
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    let items = model::VariableDecrypted {
        items: [("password", CANARY.to_owned())].into(),
        path: "app/db".into(),
        ..Default::default()
    };
    let node = model::Node {
        secret_id: CANARY.into(),
        ..Default::default()
    };
    let shown = format!("{token:?} {task:#?} {items:?} {node:?}");
    assert!(!shown.contains(CANARY), "{shown}");
    assert!(shown.contains("app/db") && shown.contains("ci"), "{shown}");
    assert!(
        shown.contains("(sensitive)") && shown.contains("(secret)"),
        "{shown}"
    );
}
