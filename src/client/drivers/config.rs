//! Reading a driver's configuration: every key typed, unknown keys refused.

use std::collections::BTreeMap;

use drover_events::gojson::parse_duration;
use serde_json::Value;

/// A configuration being read; problems are collected and reported together.
pub struct DriverConfigReader<'a> {
    config: &'a BTreeMap<String, Value>,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

impl<'a> DriverConfigReader<'a> {
    /// Reads `config`.
    pub fn new(config: &'a BTreeMap<String, Value>) -> Self {
        Self {
            config,
            known: Vec::new(),
            problems: Vec::new(),
        }
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.config.get(key).filter(|v| !v.is_null())
    }

    fn wrong(&mut self, key: &str, expected: &str) {
        self.problems.push(format!("{key}: expected {expected}"));
    }

    /// A text; numbers and booleans are taken as their text, as HCL does.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => {
                self.wrong(key, "a string");
                None
            }
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str) -> Vec<String> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let item = |v: &Value| match v {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        };
        let items = value
            .as_array()
            .and_then(|a| a.iter().map(item).collect::<Option<Vec<_>>>());
        items.unwrap_or_else(|| {
            self.wrong(key, "a list of strings");
            Vec::new()
        })
    }

    /// A whole number; a text with one is taken too.
    pub fn number(&mut self, key: &'static str) -> Option<i64> {
        let value = self.get(key)?;
        let number = value
            .as_i64()
            .or_else(|| {
                value
                    .as_f64()
                    .filter(|f| f.fract() == 0.0)
                    .map(|f| f as i64)
            })
            .or_else(|| value.as_str()?.trim().parse().ok());
        if number.is_none() {
            self.wrong(key, "a number");
        }
        number
    }

    /// A boolean; a text with one is taken too.
    pub fn flag(&mut self, key: &'static str) -> bool {
        let Some(value) = self.get(key) else {
            return false;
        };
        let flag = value.as_bool().or_else(|| match value.as_str()? {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        });
        flag.unwrap_or_else(|| {
            self.wrong(key, "a boolean");
            false
        })
    }

    /// A duration in nanoseconds: `"30s"`, or a number of nanoseconds.
    pub fn duration(&mut self, key: &'static str) -> Option<i64> {
        let value = self.get(key)?;
        let nanos = value.as_i64().or_else(|| parse_duration(value.as_str()?));
        if nanos.is_none() {
            self.wrong(key, "a duration");
        }
        nanos
    }

    /// A block: an object, or a list with one.
    pub fn block(&mut self, key: &'static str) -> Option<BTreeMap<String, Value>> {
        let value = self.get(key)?;
        let value = value.as_array().and_then(|a| a.first()).unwrap_or(value);
        let block = value.as_object().map(|o| o.clone().into_iter().collect());
        if block.is_none() {
            self.wrong(key, "a block");
        }
        block
    }

    /// Marks a key as known without reading it.
    pub fn ignore(&mut self, key: &'static str) {
        self.known.push(key);
    }

    /// Whether there is a value, of whatever kind.
    pub fn is_set(&mut self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Adds a problem.
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Ends with `value` when there was no problem and no unknown key.
    ///
    /// # Errors
    /// All problems in one text.
    pub fn finish<T>(mut self, value: T) -> Result<T, String> {
        for key in self.config.keys() {
            if !self.known.contains(&key.as_str()) {
                self.problems.push(format!("{key}: unknown key"));
            }
        }
        if self.problems.is_empty() {
            Ok(value)
        } else {
            Err(self.problems.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T>(
        value: Value,
        read: impl FnOnce(&mut DriverConfigReader<'_>) -> T,
    ) -> Result<T, String> {
        let config = BTreeMap::from([("key".to_owned(), value)]);
        let mut reader = DriverConfigReader::new(&config);
        let value = read(&mut reader);
        reader.finish(value)
    }

    fn refused<T: Default>(expected: &str) -> Result<T, String> {
        Err(format!("key: expected {expected}"))
    }

    #[test]
    fn values_are_taken_as_what_they_are_and_as_texts_of_it() {
        for (value, wanted) in [
            (json!("a"), Ok(Some("a".to_owned()))),
            (json!(7), Ok(Some("7".to_owned()))),
            (json!(true), Ok(Some("true".to_owned()))),
            (json!(null), Ok(None)),
            (json!(["a"]), refused("a string")),
        ] {
            assert_eq!(read(value, |r| r.text("key")), wanted);
        }
        for (value, wanted) in [
            (json!(7), Ok(Some(7))),
            (json!(-7), Ok(Some(-7))),
            (json!(7.0), Ok(Some(7))),
            (json!(" 7 "), Ok(Some(7))),
            (json!(null), Ok(None)),
            (json!(7.5), refused("a number")),
            (json!("seven"), refused("a number")),
        ] {
            assert_eq!(read(value, |r| r.number("key")), wanted);
        }
        for (value, wanted) in [
            (json!(true), Ok(true)),
            (json!(false), Ok(false)),
            (json!("true"), Ok(true)),
            (json!("1"), Ok(true)),
            (json!("false"), Ok(false)),
            (json!("0"), Ok(false)),
            (json!(null), Ok(false)),
            (json!("yes"), refused("a boolean")),
            (json!(1), refused("a boolean")),
        ] {
            assert_eq!(read(value, |r| r.flag("key")), wanted);
        }
        for (value, wanted) in [
            (json!("3s"), Ok(Some(3_000_000_000))),
            (json!(3), Ok(Some(3))),
            (json!(null), Ok(None)),
            (json!("soon"), refused("a duration")),
            (json!(true), refused("a duration")),
        ] {
            assert_eq!(read(value, |r| r.duration("key")), wanted);
        }
    }

    #[test]
    fn lists_and_blocks_are_read_whole_or_refused() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect());
        for (value, wanted) in [
            (json!(["a", 7, false]), texts(&["a", "7", "false"])),
            (json!([]), texts(&[])),
            (json!(null), texts(&[])),
            (json!("a"), refused("a list of strings")),
            (json!(["a", ["b"]]), refused("a list of strings")),
        ] {
            assert_eq!(read(value, |r| r.texts("key")), wanted);
        }
        let block = || BTreeMap::from([("a".to_owned(), json!(1))]);
        for (value, wanted) in [
            (json!({"a": 1}), Ok(Some(block()))),
            (json!([{"a": 1}]), Ok(Some(block()))),
            (json!(null), Ok(None)),
            (json!("a"), refused("a block")),
        ] {
            assert_eq!(read(value, |r| r.block("key")), wanted);
        }
    }

    #[test]
    fn what_nobody_asked_for_is_refused_and_all_problems_are_told() {
        let set = |value| read(value, |r| r.is_set("key"));
        assert_eq!((set(json!(0)), set(json!(null))), (Ok(true), Ok(false)));
        assert_eq!(read(json!(1), |r| r.ignore("key")), Ok(()));
        let nobody = read(json!(1), |_| ());
        assert_eq!(nobody, Err("key: unknown key".to_owned()));
        let both = read(json!([1]), |r| {
            r.text("key");
            r.problem("no such thing");
        });
        assert_eq!(
            both,
            Err("key: expected a string; no such thing".to_owned())
        );
    }
}
