//! Things that are read, changed in part and written again. What a command does not know of them
//! stays as it came: an agent of another release may hold more than it.

use super::client::Client;
use anyhow::{Result, anyhow};
use serde_json::{Map, Value as Json};

/// A thing as it came.
pub(super) type Raw = Map<String, Json>;

/// What is at a path, to be changed; `failed` is the error where it cannot be had.
///
/// # Errors
/// What the agent refuses, and an answer that is no object: it holds nothing that could stay.
pub(super) async fn current(client: &Client, path: &str, failed: &'static str) -> Result<Raw> {
    let found = client.fetch::<Json>(path, &[]).await;
    match found.map_err(|err| err.context(failed))? {
        Json::Object(found) => Ok(found),
        _ => Err(anyhow!("the agent answers with no object; nothing was changed").context(failed)),
    }
}

/// What a thing holds under a name, to be changed and set again; empty where it holds nothing.
pub(super) fn part(thing: &mut Raw, name: &str) -> Raw {
    match thing.remove(name) {
        Some(Json::Object(part)) => part,
        _ => Raw::new(),
    }
}

/// Sets what was given; all else stays.
pub(super) fn set<const N: usize>(thing: &mut Raw, given: [(&str, Option<Json>); N]) {
    for (name, value) in given {
        if let Some(value) = value {
            thing.insert(name.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_not_given_stays() {
        let Json::Object(mut thing) = json!({"A": 1, "New": [1], "Inner": {"B": true, "C": 7}})
        else {
            panic!("an object")
        };
        let mut inner = part(&mut thing, "Inner");
        set(&mut inner, [("B", Some(Json::Bool(false))), ("C", None)]);
        assert!(part(&mut thing, "None").is_empty());
        let inner = Some(Json::Object(inner));
        set(&mut thing, [("A", None), ("Inner", inner), ("D", None)]);
        let wanted = json!({"A": 1, "New": [1], "Inner": {"B": false, "C": 7}});
        assert_eq!(Json::Object(thing), wanted);
    }
}
