//! Takes a job out of the body of a request, as far as jobs have such fields: what is unknown is
//! skipped over and never built but for a mark that it is there, and a job of too many parts is
//! refused while it is read. A body of some megabytes could be made into thirty times as much
//! otherwise.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value as Json};

use super::normal::UNKNOWN_MOST;
use super::schema::{JOB, Kind, Shape};

/// Fields and elements of a job at most, with those that every object gets by default. As many make
/// some hundred megabytes for a moment, and far more than a job that an event could hold.
const MOST_PARTS: usize = 1 << 20;

/// The value of the body's `Job`; `null` when it says none. The rest of the body is not looked at.
///
/// # Errors
/// The body is no JSON object, or the job has too many parts.
pub(super) fn job(body: &[u8]) -> Result<Json, serde_json::Error> {
    let left = Left {
        parts: Cell::new(MOST_PARTS),
        marks: Cell::new(UNKNOWN_MOST),
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let job = Top { left: &left }.deserialize(&mut json)?;
    json.end()?;
    Ok(job)
}

/// What may still be built.
struct Left {
    parts: Cell<usize>,
    /// Marks of unknown fields.
    marks: Cell<usize>,
}

/// The body around the job.
struct Top<'c> {
    left: &'c Left,
}

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut job = Json::Null;
        while let Some(key) = map.next_key::<String>()? {
            if key.eq_ignore_ascii_case("Job") {
                job = map.next_value_seed(Part {
                    what: What::Object(&JOB),
                    left: self.left,
                })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(job)
    }
}

/// What a value should be, and so how much of it is built.
#[derive(Clone, Copy)]
enum What {
    /// An object; only its known fields.
    Object(&'static Shape),
    /// A list of such.
    List(&'static Shape),
    /// Such by label.
    ByLabel(&'static Shape),
    /// Anything, whole.
    Free,
}

impl From<Kind> for What {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::One(shape) | Kind::Omit(shape) => Self::Object(shape),
            Kind::Many(shape) | Kind::Labelled(shape, _) => Self::List(shape),
            Kind::ByLabel(shape, _) => Self::ByLabel(shape),
            _ => Self::Free,
        }
    }
}

/// A value within the job.
#[derive(Clone, Copy)]
struct Part<'c> {
    what: What,
    left: &'c Left,
}

impl Part<'_> {
    /// Takes from what is left; what is of another kind than it should be is refused later, with
    /// its path.
    fn spend<E: serde::de::Error>(&self, parts: usize) -> Result<(), E> {
        let left = self.left.parts.get().checked_sub(parts);
        let left = left.ok_or_else(|| {
            E::custom(format_args!(
                "a job of more than {MOST_PARTS} fields is not read"
            ))
        })?;
        self.left.parts.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let what = match self.what {
            What::List(shape) => What::Object(shape),
            What::Free => What::Free,
            What::Object(_) | What::ByLabel(_) => {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Json::Array(Vec::new()));
            }
        };
        let mut out = Vec::new();
        while let Some(item) = seq.next_element_seed(Part { what, ..self })? {
            self.spend::<A::Error>(1)?;
            out.push(item);
        }
        Ok(Json::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        if let What::Object(shape) = self.what {
            self.spend::<A::Error>(shape.fields.len())?;
        }
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let what = match self.what {
                What::Free => What::Free,
                What::ByLabel(shape) => What::Object(shape),
                What::Object(shape) => match shape.json(&key) {
                    Some(field) => field.kind.into(),
                    None => {
                        let marks = self.left.marks.get();
                        if map.next_value::<Says>()?.0 && marks > 0 {
                            self.left.marks.set(marks - 1);
                            out.insert(key, Json::Bool(true));
                        }
                        continue;
                    }
                },
                What::List(_) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            self.spend::<A::Error>(1)?;
            let value = map.next_value_seed(Part { what, ..self })?;
            out.insert(key, value);
        }
        Ok(Json::Object(out))
    }
}

/// Whether a value says anything (zero, false, the empty text and the like do not); it is not kept.
pub(crate) struct Says(pub(crate) bool);

impl<'de> Deserialize<'de> for Says {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Says(false))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_fields_are_built_and_others_are_not() {
        let body = json!({
            "Other": [{"a": 0}, {"a": 0}],
            "job": {
                "id": "web", "Unknown": [{"a": 0}], "Meta": {"any": "key"},
                "TaskGroups": [{
                    "Name": "g", "Nope": {"a": [0]}, "Empty": [], "Unset": null,
                    "Tasks": [{"Name": "t", "Config": {"args": [1, {"x": null}]}, "y": 1}],
                }],
                "Update": [1, 2, 3],
            },
        });
        let read = job(body.to_string().as_bytes()).expect("reads");
        assert_eq!(
            read,
            json!({
                "id": "web", "Unknown": true, "Meta": {"any": "key"},
                "TaskGroups": [{
                    "Name": "g", "Nope": true,
                    "Tasks": [{"Name": "t", "Config": {"args": [1, {"x": null}]}, "y": true}],
                }],
                "Update": [],
            })
        );
        assert_eq!(job(b"{}").expect("reads"), Json::Null);
        assert!(job(b"[]").is_err() && job(b"{} x").is_err());
    }

    #[test]
    fn a_job_of_too_many_parts_is_refused_before_it_is_built() {
        let objects = format!(
            "{{\"Job\":{{\"TaskGroups\":[{}{{}}]}}}}",
            "{},".repeat(200_000)
        );
        let values = format!(
            "{{\"Job\":{{\"Meta\":{{\"a\":[{}0]}}}}}}",
            "0,".repeat(2_000_000)
        );
        for body in [objects, values] {
            let refused = job(body.as_bytes()).expect_err("too many").to_string();
            assert!(refused.contains("more than 1048576 fields"), "{refused}");
        }
        let unknown = format!("{{\"Job\":{{\"x\":[{}0]}}}}", "{\"a\":0},".repeat(500_000));
        let held = crate::jobspec::counting_test::peak(1 << 20, || {
            assert_eq!(job(unknown.as_bytes()).expect("reads"), json!({"x": true}));
        });
        assert!(held < 64 << 10, "{held} bytes");
    }
}
