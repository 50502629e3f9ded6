//! The macro that gives a struct its two encodings and its JSON Schema.
//!
//! JSON prints every field (sparse structs: every field that is not empty) in declaration order;
//! the binary form (MessagePack maps) has the same names and leaves out what equals the default.

use serde::de::{DeserializeSeed, Deserializer, Visitor};
use std::cmp::Ordering;
use std::fmt;

use super::Zero;
use crate::class::Class;

/// Declares structs together with both of their encodings.
///
/// `field: Type = "Name"` is printed always, `field: Type = "Name" omit` only when not empty.
/// Behind that stands in parentheses how confidential the field is ([`Class`]), unless it is
/// obviously public: `secret_id: String = "SecretID" (Secret)`.
///
/// A struct that is a block of job specifications is declared as `struct Service = "service"`: the
/// text is the block's name (`$hcl_block`). Only then the brackets behind its fields count
/// (`$attrs`: what specifications say of the field), and `} + { … }` may follow: fields that
/// specifications or requests may have and the struct has not (`$input_only`), with brackets of
/// their own (`$input_attrs`). See [`field`](crate::field).
///
/// `sparse:` before the struct omits every empty field; `custom:` leaves `Serialize` to the caller,
/// which gets `serialize_fields` for the default form. Clone, Debug (which hides what has a class),
/// Default, PartialEq, Deserialize, JsonSchema (which `custom:` leaves to the caller, which gets
/// `fields_schema`) and [`Zero`](crate::gojson::Zero) are always there.
#[macro_export]
macro_rules! wire {
    (sparse: $($rest:tt)*) => { $crate::wire!(@structs serialize true $($rest)*); };
    (custom: $($rest:tt)*) => { $crate::wire!(@structs none false $($rest)*); };

    (@structs $how:ident $omit:literal $(
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident $(= $hcl_block:literal)? {
            $(
                $(#[doc = $fdoc:literal])*
                $field:ident: $ty:ty = $key:literal $($opt:ident)? $(($class:ident))?
                    $([$($attrs:tt)+])?
            ),* $(,)?
        } $(+ {
            $(
                $input_only:ident: $input_ty:ty = $input_key:literal $([$($input_attrs:tt)+])?
            ),* $(,)?
        })?
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Default, PartialEq)]
        #[allow(missing_docs, reason = "fields carry the names of the wire; the type says what it is")]
        $vis struct $name {
            $( $(#[doc = $fdoc])* $vis $field: $ty, )*
        }

        /// Values of a class other than public are hidden.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let classes = $crate::class::Classes::of(stringify!($name));
                let mut out = f.debug_struct(stringify!($name));
                $( $crate::gojson::show(
                    &mut out, stringify!($field), classes.field($key), &self.$field); )*
                out.finish()
            }
        }

        impl $crate::gojson::Zero for $name {
            /// For the binary form, which leaves out what equals the default.
            fn is_zero(&self) -> bool {
                $( $crate::gojson::Zero::is_zero(&self.$field) && )* true
            }

            /// For JSON that omits empty fields: an empty list that is not `null` counts, too.
            fn is_blank(&self) -> bool {
                $( $crate::gojson::Zero::is_blank(&self.$field) && )* true
            }
        }

        impl $name {
            /// The names of the fields on the wire, in order.
            $vis const FIELDS: &'static [&'static str] = &[$($key),*];

            /// The classified fields: those with a class in parentheses.
            #[allow(dead_code, reason = "most structs have none")]
            $vis const CLASSES: $crate::class::FieldClasses = &[
                $( $( ($key, $crate::class::Class::$class), )? )*
            ];

            /// Their positions, in the order in which rows are stored: that of their encoded names.
            #[allow(dead_code, reason = "not all shapes are decoded")]
            const STORED_ORDER: &'static [u16] =
                &$crate::gojson::stored_order::<{ Self::FIELDS.len() }>(Self::FIELDS);

            /// Writes the fields in the default form of the serialiser's kind.
            ///
            /// # Errors
            /// Those of the serialiser.
            $vis fn serialize_fields<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                use $crate::__private::serde::ser::SerializeStruct as _;
                let human = serializer.is_human_readable();
                let mut kept = 0_usize;
                $(
                    let $field = $crate::gojson::keep(
                        human, $omit $(|| $crate::wire!(@opt $opt))?, &self.$field);
                    kept += usize::from($field);
                )*
                let mut out = serializer.serialize_struct(stringify!($name), kept)?;
                $(
                    if $field {
                        out.serialize_field($key, &self.$field)?;
                    } else {
                        out.skip_field($key)?;
                    }
                )*
                out.end()
            }
        }

        impl $name {
            /// The JSON Schema of the default form.
            #[allow(dead_code, reason = "not all shapes are shown to others")]
            $vis fn fields_schema(
                generator: &mut $crate::__private::schemars::SchemaGenerator,
            ) -> $crate::__private::schemars::Schema {
                use $crate::__private::schemars::SchemaGenerator;
                $crate::gojson::object(generator, concat!($($doc, "\n",)*), &[$(
                    $crate::gojson::Property {
                        name: $key,
                        doc: concat!($($fdoc, "\n",)*),
                        omitted: $omit $(|| $crate::wire!(@opt $opt))?,
                        schema: SchemaGenerator::subschema_for::<$ty>,
                    },
                )*])
            }
        }

        $crate::wire!(@$how $name);

        $crate::jobspec_block! { $name $(= $hcl_block)? {
            $($field: $ty = $key $(($class))? $([$($attrs)+])?,)*
            $($($input_only: $input_ty = $input_key $([$($input_attrs)+])?,)*)?
        } }

        const _: () = assert!(
            $crate::class::is_listed(stringify!($name), $name::CLASSES),
            "a struct with a class is found by its name: list it in events/src/class.rs"
        );

        impl<'de> $crate::__private::serde::Deserialize<'de> for $name {
            fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
            where
                D: $crate::__private::serde::Deserializer<'de>,
            {
                use $crate::__private::serde::de;

                #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
                enum Field { $($field),* }

                struct FieldsVisitor;

                impl<'de> de::Visitor<'de> for FieldsVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object (", stringify!($name), ")"))
                    }

                    fn visit_map<A: de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        let mut value = $name::default();
                        let mut cursor = $crate::gojson::KeyCursor::default();
                        while let Some(found) = map.next_key_seed(
                            $crate::gojson::KeySeed::with_stored_order(
                                $name::FIELDS, $name::STORED_ORDER, &mut cursor))?
                        {
                            $(
                                if found == Field::$field as usize {
                                    value.$field = map.next_value()?;
                                    continue;
                                }
                            )*
                            map.next_value::<de::IgnoredAny>()?;
                        }
                        Ok(value)
                    }
                }

                deserializer.deserialize_struct(stringify!($name), $name::FIELDS, FieldsVisitor)
            }
        }
    )*};

    (@serialize $name:ident) => {
        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                self.serialize_fields(serializer)
            }
        }

        impl $crate::__private::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }

            fn json_schema(
                generator: &mut $crate::__private::schemars::SchemaGenerator,
            ) -> $crate::__private::schemars::Schema {
                Self::fields_schema(generator)
            }
        }
    };
    (@none $name:ident) => {};
    (@opt omit) => { true };

    ($($rest:tt)*) => { $crate::wire!(@structs serialize false $($rest)*); };
}

/// Implements [`JsonSchema`](schemars::JsonSchema) for structs that are serialised by serde's own
/// derive, with the words and types of their wire form.
#[macro_export]
macro_rules! impl_json_schema {
    ($($name:ident: $doc:literal {
        $($key:literal: $ty:ty $([$opt:ident])? = $fdoc:literal),* $(,)?
    })*) => {$(
        impl $crate::__private::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(
                generator: &mut $crate::__private::schemars::SchemaGenerator,
            ) -> $crate::__private::schemars::Schema {
                $crate::gojson::object(generator, $doc, &[$(
                    $crate::gojson::Property {
                        name: $key,
                        doc: $fdoc,
                        omitted: false $(|| $crate::wire!(@opt $opt))?,
                        schema:
                            $crate::__private::schemars::SchemaGenerator::subschema_for::<$ty>,
                    },
                )*])
            }
        }
    )*};
}

/// Shows a field in debug output: a value of a class, unless it is empty, as that class only.
pub fn show<T: Zero + fmt::Debug>(
    out: &mut fmt::DebugStruct<'_, '_>,
    name: &str,
    class: Class,
    value: &T,
) {
    match class {
        class if class.is_hashed() && !value.is_blank() => {
            out.field(name, &format_args!("(sensitive)"))
        }
        Class::Secret if !value.is_blank() => out.field(name, &format_args!("(secret)")),
        _ => out.field(name, value),
    };
}

/// Whether a field is written: the rule of both encodings. For the macro.
#[inline]
pub fn keep<T: Zero>(human: bool, omit_empty: bool, value: &T) -> bool {
    if human {
        !omit_empty || !value.is_blank()
    } else {
        !value.is_zero()
    }
}

/// Whether one name comes before another in a stored row. Rows are stored with their keys sorted
/// by encoded bytes, and MessagePack puts a text's length before it: so the order is by length,
/// then by bytes. Names are far shorter than the length at which that prefix has another form.
const fn before(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return one.len() < other.len();
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return one[at] < other[at];
        }
        at += 1;
    }
    false
}

/// The positions of names in the order of stored rows. For the macro.
pub const fn stored_order<const N: usize>(names: &[&str]) -> [u16; N] {
    let mut order = [0; N];
    let mut at = 0;
    while at < N {
        let mut to = at;
        while to > 0 && before(names[at], names[order[to - 1] as usize]) {
            order[to] = order[to - 1];
            to -= 1;
        }
        order[to] = at as u16;
        at += 1;
    }
    order
}

#[cfg(test)]
std::thread_local! {
    /// How many names this thread has compared.
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Where the last name was found: what is looked for next lies behind it, in one order or the other.
#[derive(Debug, Default)]
pub struct KeyCursor {
    declared: usize,
    stored: usize,
}

/// Reads a key as the position of a field name; unknown names give the number of fields.
///
/// Names come in declaration order, as JSON has them, or in that of stored rows, and mostly some are
/// left out: the search continues where the last one was found.
pub struct KeySeed<'a> {
    fields: &'static [&'static str],
    stored: &'static [u16],
    cursor: &'a mut KeyCursor,
}

impl<'a> KeySeed<'a> {
    /// A seed over the names of a struct and the place where the last one was found.
    pub fn new(fields: &'static [&'static str], cursor: &'a mut KeyCursor) -> Self {
        Self::with_stored_order(fields, &[], cursor)
    }

    /// The same, with the positions of the names as stored rows have them.
    pub fn with_stored_order(
        fields: &'static [&'static str],
        stored: &'static [u16],
        cursor: &'a mut KeyCursor,
    ) -> Self {
        Self {
            fields,
            stored,
            cursor,
        }
    }

    /// The position of an exact name.
    pub(super) fn find(&mut self, key: &str) -> usize {
        let start = self.cursor.declared.min(self.fields.len());
        if self
            .fields
            .get(start)
            .is_some_and(|next| is_same(next, key))
        {
            self.cursor.declared = start + 1;
            return start;
        }
        if let Some(found) = self.find_stored(key) {
            return found;
        }
        let (before, after) = self.fields.split_at(start);
        let found = after
            .iter()
            .position(|f| is_same(f, key))
            .map(|i| i + start);
        let found = found.or_else(|| before.iter().position(|f| is_same(f, key)));
        if let Some(at) = found {
            self.cursor.declared = at + 1;
        }
        found.unwrap_or(self.fields.len())
    }

    /// As stored rows have it: whatever is passed by was left out.
    fn find_stored(&mut self, key: &str) -> Option<usize> {
        let mut rank = self.cursor.stored;
        loop {
            let at = usize::from(*self.stored.get(rank)?);
            let name = self.fields[at];
            #[cfg(test)]
            {
                COMPARED.set(COMPARED.get() + 1);
            }
            let order = (name.len(), name.as_bytes()).cmp(&(key.len(), key.as_bytes()));
            rank += 1;
            match order {
                Ordering::Less => {}
                Ordering::Equal => {
                    self.cursor.stored = rank;
                    self.cursor.declared = at + 1;
                    return Some(at);
                }
                Ordering::Greater => return None,
            }
        }
    }
}

#[inline]
fn is_same(name: &str, key: &str) -> bool {
    #[cfg(test)]
    {
        COMPARED.set(COMPARED.get() + 1);
    }
    name == key
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(mut self, key: &str) -> Result<usize, E> {
        Ok(self.find(key))
    }

    fn visit_bytes<E: serde::de::Error>(mut self, key: &[u8]) -> Result<usize, E> {
        Ok(std::str::from_utf8(key).map_or(self.fields.len(), |k| self.find(k)))
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;
    use crate::model::Job;

    /// A map whose keys come in this order.
    struct Ordered(Vec<(String, serde_json::Value)>);

    impl Serialize for Ordered {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
        }
    }

    #[test]
    fn a_stored_row_is_read_without_a_search_for_its_names() {
        let text = |text: &str| text.to_owned();
        let job = Job {
            stop: true,
            region: text("global"),
            namespace: text("default"),
            id: text("web/periodic-1"),
            parent_id: text("web"),
            name: text("web"),
            r#type: text("batch"),
            priority: 70,
            all_at_once: true,
            datacenters: vec![text("dc1"), text("dc2")].into(),
            node_pool: text("gpu"),
            dispatched: true,
            status: text("running"),
            status_description: text("as it should"),
            stable: true,
            version: 3,
            submit_time: 4,
            create_index: 5,
            modify_index: 6,
            job_modify_index: 7,
            ..Job::default()
        };
        let named = rmp_serde::to_vec_named(&job).unwrap();
        let row: serde_json::Map<String, serde_json::Value> =
            rmp_serde::from_slice(&named).unwrap();
        let mut row: Vec<_> = row.into_iter().collect();
        row.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
        let keys = row.len();
        assert_eq!(keys, 20, "what is as usual is left out");
        let stored = rmp_serde::to_vec(&Ordered(row)).unwrap();
        COMPARED.set(0);
        let read: Job = rmp_serde::from_slice(&stored).unwrap();
        let compared = COMPARED.get();
        assert_eq!(read, job);
        let most = Job::FIELDS.len() + keys;
        assert!((keys..=most).contains(&compared), "{compared} of {most}");
    }

    const FIELDS: &[&str] = &["ID", "Name", "Type", "CreateIndex", "B", "A", "Datacenters"];
    const STORED_ORDER: &[u16] = &stored_order::<{ FIELDS.len() }>(FIELDS);

    #[test]
    fn names_are_found_in_whichever_order_they_come() {
        let stored: Vec<_> = STORED_ORDER
            .iter()
            .map(|at| FIELDS[usize::from(*at)])
            .collect();
        assert_eq!(
            stored,
            ["A", "B", "ID", "Name", "Type", "CreateIndex", "Datacenters"]
        );
        let mut orders = vec![FIELDS.to_vec(), stored];
        orders.push(FIELDS.iter().rev().copied().collect());
        for order in orders {
            for known in [&[][..], STORED_ORDER] {
                let mut cursor = KeyCursor::default();
                for name in &order {
                    let found = KeySeed::with_stored_order(FIELDS, known, &mut cursor).find(name);
                    assert_eq!(FIELDS.get(found), Some(name), "{order:?}");
                    for unknown in ["", "id", "Namf", "Zzzzzzzzzzzzzzzz"] {
                        let found =
                            KeySeed::with_stored_order(FIELDS, known, &mut cursor).find(unknown);
                        assert_eq!(found, FIELDS.len(), "{unknown}");
                    }
                }
            }
        }
    }
}
