//! Sets: lists taken without order and repetition, given back sorted.

use super::super::budget::MOST_ROWS;
use super::super::types::sort_key;
use super::super::value::Value;
use super::Outcome;
use super::args::Args;

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "setunion" => fold(args, |mut a, b| {
            a.extend(b);
            a
        }),
        "setintersection" => fold(args, |a, b| {
            a.into_iter().filter(|v| b.contains(v)).collect()
        }),
        "setsubtract" => fold(args, |a, b| {
            a.into_iter().filter(|v| !b.contains(v)).collect()
        }),
        "toset" => fold(args, |a, _| a),
        "setproduct" => product(args),
        _ => return None,
    })
}

fn fold(args: &mut Args, f: impl Fn(Vec<Value>, Vec<Value>) -> Vec<Value>) -> Outcome {
    let mut set = args.list()?;
    while args.left() > 0 {
        set = f(set, args.list()?);
    }
    if set.len() > 20_000 {
        return Err("the set is too large".into());
    }
    set.sort_by_cached_key(sort_key);
    set.dedup();
    Ok(Value::List(set))
}

fn product(args: &mut Args) -> Outcome {
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    while args.left() > 0 {
        let items = args.list()?;
        if rows.len().saturating_mul(items.len()) as u64 > MOST_ROWS {
            return Err("the product has too many elements".into());
        }
        rows = rows
            .iter()
            .flat_map(|row| {
                items.iter().map(move |item| {
                    let mut row = row.clone();
                    row.push(item.clone());
                    row
                })
            })
            .collect();
    }
    Ok(Value::List(rows.into_iter().map(Value::List).collect()))
}
