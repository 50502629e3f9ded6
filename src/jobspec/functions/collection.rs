//! Lists and maps.

use super::super::value::Value;
use super::Outcome;
use super::args::Args;
use std::collections::BTreeMap;

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "length" => length(args),
        "chunklist" => chunklist(args),
        "coalesce" => coalesce(args),
        "coalescelist" => coalescelist(args),
        "compact" => compact(args),
        "concat" => concat(args),
        "contains" => contains(args),
        "distinct" => distinct(args),
        "element" => element(args),
        "flatten" => args.list().map(|items| Value::List(flat(items))),
        "index" => index(args),
        "keys" => args
            .map()
            .map(|m| Value::List(m.into_keys().map(Value::Str).collect())),
        "values" => args.map().map(|m| Value::List(m.into_values().collect())),
        "lookup" => lookup(args),
        "merge" => merge(args),
        "range" => range(args),
        "reverse" => args
            .list()
            .map(|items| Value::List(items.into_iter().rev().collect())),
        "slice" => slice(args),
        "sort" => sort(args),
        "zipmap" => zipmap(args),
        _ => return None,
    })
}

fn length(args: &mut Args) -> Outcome {
    let count = match args.any()? {
        Value::List(items) => items.len(),
        Value::Map(map) => map.len(),
        Value::Str(text) => text.chars().count(),
        _ => {
            return Err(
                "argument must be a string, a collection type, or a structural type".into(),
            );
        }
    };
    args.end()?;
    Ok(Value::Int(count as i128))
}

fn chunklist(args: &mut Args) -> Outcome {
    let (items, size) = (args.list()?, args.whole()?);
    args.end()?;
    let size =
        usize::try_from(size).map_err(|_| "the size argument must be positive".to_owned())?;
    let size = if size == 0 { items.len().max(1) } else { size };
    Ok(Value::List(
        items
            .chunks(size)
            .map(|c| Value::List(c.to_vec()))
            .collect(),
    ))
}

fn coalesce(args: &mut Args) -> Outcome {
    let empty = |v: &Value| matches!(v, Value::Null) || *v == Value::str("");
    args.rest()
        .into_iter()
        .find(|v| !empty(v))
        .ok_or_else(|| "no non-null arguments".to_owned())
}

fn coalescelist(args: &mut Args) -> Outcome {
    let full = |v: &Value| match v {
        Value::List(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty(),
        _ => false,
    };
    args.rest()
        .into_iter()
        .find(full)
        .ok_or_else(|| "no non-null arguments".to_owned())
}

fn compact(args: &mut Args) -> Outcome {
    let items = args.list()?;
    args.end()?;
    let keep = |v: &Value| !matches!(v, Value::Null) && *v != Value::str("");
    Ok(Value::List(items.into_iter().filter(keep).collect()))
}

fn concat(args: &mut Args) -> Outcome {
    let mut out = Vec::new();
    while args.left() > 0 {
        out.extend(args.list()?);
    }
    Ok(Value::List(out))
}

fn contains(args: &mut Args) -> Outcome {
    let (items, value) = (args.list()?, args.any()?);
    args.end()?;
    Ok(Value::Bool(items.contains(&value)))
}

fn distinct(args: &mut Args) -> Outcome {
    let items = args.list()?;
    args.end()?;
    let mut seen = std::collections::BTreeSet::new();
    let fresh = |v: &Value| seen.insert(v.to_json().to_string());
    Ok(Value::List(items.into_iter().filter(fresh).collect()))
}

fn element(args: &mut Args) -> Outcome {
    let (mut items, index) = (args.list()?, args.whole()?);
    args.end()?;
    if items.is_empty() {
        return Err("cannot use element function with an empty list".into());
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let index = usize::try_from(index.rem_euclid(count)).unwrap_or(0);
    Ok(items.swap_remove(index))
}

fn flat(items: Vec<Value>) -> Vec<Value> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Value::List(inner) => out.extend(flat(inner)),
            other => out.push(other),
        }
    }
    out
}

/// The element at an index or key, as `collection[key]` gives it.
fn index(args: &mut Args) -> Outcome {
    let (collection, key) = (args.any()?, args.any()?);
    args.end()?;
    let found = match (collection, key) {
        (Value::List(items), Value::Int(at)) => usize::try_from(at)
            .ok()
            .and_then(|at| items.into_iter().nth(at)),
        (Value::Map(mut map), Value::Str(key)) => map.remove(&key),
        (Value::List(_), _) => return Err("key for list must be number".into()),
        (Value::Map(_), _) => return Err("key for map must be string".into()),
        _ => return Err("a list, tuple, map or object is required".into()),
    };
    found.ok_or_else(|| "invalid index".into())
}

fn lookup(args: &mut Args) -> Outcome {
    let (mut map, key) = (args.map()?, args.text()?);
    let default = if args.left() > 0 {
        Some(args.any()?)
    } else {
        None
    };
    args.end()?;
    map.remove(&key)
        .or(default)
        .ok_or_else(|| format!("the given object has no attribute {key:?} and no default is given"))
}

fn merge(args: &mut Args) -> Outcome {
    let mut out = BTreeMap::new();
    while args.left() > 0 {
        match args.any()? {
            Value::Map(map) => out.extend(map),
            Value::Null => {}
            _ => return Err("arguments must be maps or objects".into()),
        }
    }
    Ok(Value::Map(out))
}

fn range(args: &mut Args) -> Outcome {
    let first = args.number()?;
    let (start, end) = if args.left() > 0 {
        (first, args.number()?)
    } else {
        (0.0, first)
    };
    let default = if end < start { -1.0 } else { 1.0 };
    let step = if args.left() > 0 {
        args.number()?
    } else {
        default
    };
    args.end()?;
    if step == 0.0 || (end - start) * step < 0.0 {
        return Err("the step leads away from the end".into());
    }
    let mut out = Vec::new();
    let mut x = start;
    while if step > 0.0 { x < end } else { x > end } {
        if out.len() >= 1024 {
            return Err(
                "more than 1024 values were generated; either decrease the difference \
                        between start and end or use a smaller step"
                    .into(),
            );
        }
        out.push(Value::num(x));
        x += step;
    }
    Ok(Value::List(out))
}

fn slice(args: &mut Args) -> Outcome {
    let (items, start, end) = (args.list()?, args.whole()?, args.whole()?);
    args.end()?;
    let at = |n: i64| usize::try_from(n).map_err(|_| "indices may not be negative".to_owned());
    let part = items.get(at(start)?..at(end)?);
    part.map(|p| Value::List(p.to_vec()))
        .ok_or_else(|| "indices lie outside the list".to_owned())
}

fn sort(args: &mut Args) -> Outcome {
    let mut texts = args.texts()?;
    args.end()?;
    texts.sort();
    Ok(Value::List(texts.into_iter().map(Value::Str).collect()))
}

fn zipmap(args: &mut Args) -> Outcome {
    let (keys, values) = (args.texts()?, args.list()?);
    args.end()?;
    if keys.len() != values.len() {
        let (k, v) = (keys.len(), values.len());
        return Err(format!(
            "number of keys ({k}) does not match number of values ({v})"
        ));
    }
    Ok(Value::Map(keys.into_iter().zip(values).collect()))
}
