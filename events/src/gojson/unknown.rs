//! What a document says that is no field of what it is read as, by its path.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Paths of set names that are no fields, as far as they are kept.
#[derive(Debug, Default)]
pub struct Unknown(Vec<String>);

impl Unknown {
    /// So many are kept.
    pub const MOST: usize = 16;
    /// Characters of a name at most.
    const LONGEST_NAME: usize = 64;
    /// Characters of a path at most.
    const LONGEST: usize = 256;

    /// As much of a name as is kept.
    #[must_use]
    pub fn name(name: &str) -> &str {
        let end = name.char_indices().nth(Self::LONGEST_NAME);
        end.map_or(name, |(end, _)| &name[..end])
    }

    /// Adds the name of a field that says something.
    pub fn add(&mut self, name: &str) {
        if self.0.len() < Self::MOST {
            self.0.push(format!(".{}", Self::name(name)));
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Those that came after the first `before` were found under a step: it is put before their
    /// paths.
    pub fn were_under(&mut self, before: usize, step: impl Fn() -> String) {
        for path in self.0.iter_mut().skip(before) {
            path.insert_str(0, &step());
        }
    }

    /// Reads what lies under a step; unknown fields there are named with it.
    pub fn under<T>(&mut self, step: impl Fn() -> String, read: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.count();
        let done = read(self);
        self.were_under(before, step);
        done
    }

    /// The paths, from the outermost object down; empty where that has no name.
    #[must_use]
    pub fn paths(self, outermost: &str) -> Vec<String> {
        let path = |path: String| {
            let path = format!("{outermost}{path}");
            let path = path.strip_prefix('.').unwrap_or(&path);
            path.chars().take(Self::LONGEST).collect()
        };
        self.0.into_iter().map(path).collect()
    }
}

/// Whether a value says anything (zero, false, the empty text and the like do not); it is not kept.
#[derive(Clone, Copy, Debug)]
pub struct Says(pub bool);

impl<'de> Deserialize<'de> for Says {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        value.deserialize_any(Says(false))
    }
}

impl<'de> Visitor<'de> for Says {
    type Value = Says;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Says, E> {
        Ok(Says(false))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Says, E> {
        Ok(Says(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Says, E> {
        Ok(Says(value != 0))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Says, E> {
        Ok(Says(value != 0))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Says, E> {
        Ok(Says(value != 0.0))
    }

    fn visit_str<E>(self, value: &str) -> Result<Says, E> {
        Ok(Says(!value.is_empty()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Says, A::Error> {
        let mut says = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            says = true;
        }
        Ok(Says(says))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Says, A::Error> {
        let mut says = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            says = true;
        }
        Ok(Says(says))
    }
}

impl Says {
    /// Whether a value in memory says anything.
    #[must_use]
    pub fn anything(value: &serde_json::Value) -> bool {
        Self::deserialize(value).is_ok_and(|says| says.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::gojson::{List, Map, from_slice_naming};

    crate::wire! {
        /// The outermost.
        struct Outer {
            name: String = "Name",
            inner: InnerSerializer = "Inner",
            many: List<InnerSerializer> = "Many",
            labelled: Map<InnerSerializer> = "Labelled",
            perhaps: Option<InnerSerializer> = "Perhaps",
            free: Map<crate::gojson::Any> = "Free",
        }

        /// What it holds.
        struct InnerSerializer {
            count: u64 = "Count",
            text: Map<String> = "Text",
        }
    }

    fn unknown(body: &str) -> Vec<String> {
        from_slice_naming::<Outer>(body.as_bytes()).unwrap().1
    }

    #[test]
    fn what_is_no_field_is_named_at_any_depth_where_it_says_something() {
        let body = r#"{"name":"p","Colour":"red","Zero":0,"No":false,"Nil":null,"Empty":"",
            "List":[],"Map":{},"Deep":{"a":[1]},"Rank":1,
            "inner":{"count":1,"Nope":{"Count":1},"Text":{"any":"key"},"Zero":0.0},
            "Many":[{},{"x":true,"Count":2},null,{"y":[0]}],
            "Labelled":{"a \"b\"":{"z":-1},"c":{"Count":3}},"Perhaps":{"w":"v"},
            "Free":{"any":{"key":1}}}"#;
        let (read, unknown) = from_slice_naming::<Outer>(body.as_bytes()).unwrap();
        let wanted = [
            "Colour",
            "Deep",
            "Rank",
            "Inner.Nope",
            "Many[1].x",
            "Many[3].y",
            r#"Labelled["a \"b\""].z"#,
            "Perhaps.w",
        ];
        assert_eq!(unknown, wanted);
        assert_eq!((read.inner.count, read.many[1].count), (1, 2));
        assert_eq!(read.labelled["c"].count, 3);
        assert_eq!(read.free["any"]["key"], 1);
        assert!(from_slice_naming::<Outer>(b"{} x").is_err());
    }

    #[test]
    fn few_are_kept_and_of_long_names_the_beginning() {
        let many: Vec<String> = (0..100).map(|n| format!(r#"{{"x{n}":1}}"#)).collect();
        let named = unknown(&format!(r#"{{"Many":[{}]}}"#, many.join(",")));
        assert_eq!(named.len(), super::Unknown::MOST);
        assert_eq!(named[15], "Many[15].x15");
        let long = "\u{e9}".repeat(1_000_000);
        let named = unknown(&format!(
            r#"{{"{long}":1,"Labelled":{{"{long}":{{"a":1}}}}}}"#
        ));
        let lengths: Vec<usize> = named.iter().map(|path| path.chars().count()).collect();
        assert_eq!(lengths, [64, 78]);
    }
}
