//! No function builds what was not paid for, whatever numbers it is given.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::budget::{Budget, forecast};
use super::super::value::Value;
use super::{CallError, Functions};
use drover_testkit::counting::peak;

/// The most that one call may hold at once: its arguments are small here.
const MOST: isize = 96 << 20;

const THREADS: usize = 2;

/// A call as an expression makes it.
fn call(name: &str, args: Vec<Value>, budget: &Budget) -> Result<Value, String> {
    budget.charge(forecast(name, &args))?;
    let called = Functions::Server.call(name, args, budget);
    called.map_err(|error| match error {
        CallError::Unknown => panic!("there is no {name}"),
        CallError::Failed(text) => text,
    })
}

fn hostile() -> Vec<Value> {
    let numbers = [
        i128::from(i64::MAX),
        1_000_000_000_000,
        i128::from(i64::MIN),
        -1,
        0,
        3,
    ];
    let texts = [
        "x".to_owned(),
        "a\nb ".repeat(500),
        "%4096s".repeat(40),
        "$0".repeat(2_000),
        ".*[^A-Z]|[A-Z]".to_owned(),
        "/(.*)/".to_owned(),
        "\\w".repeat(20_000),
        "ffff:ffff:ffff:ffff::/64".to_owned(),
        "2018-01-02T23:12:01Z".to_owned(),
    ];
    let list = Value::List((0..300).map(|n| Value::str(format!("{n}"))).collect());
    let map = [
        ("a".to_owned(), Value::Int(1)),
        ("b".to_owned(), list.clone()),
    ];
    let mut out: Vec<Value> = numbers.into_iter().map(Value::Int).collect();
    out.push(Value::Float(1e308));
    out.extend(texts.map(Value::Str));
    out.extend([list, Value::Map(map.into())]);
    out
}

#[test]
fn no_function_takes_more_than_is_stated_whatever_it_is_given() {
    let named = super::tests::CALLS.iter();
    let mut names: BTreeSet<&str> = named
        .filter_map(|(call, _)| call.split('(').next())
        .collect();
    for of_the_language in ["can", "try", "convert"] {
        names.remove(of_the_language);
    }
    assert!(names.len() > 60, "{}", names.len());
    let values = hostile();
    let all = arguments(&values);
    let names: Vec<&str> = names.into_iter().collect();
    // What a thread holds is counted for itself.
    std::thread::scope(|threads| {
        for names in names.chunks(names.len().div_ceil(THREADS)) {
            threads.spawn(|| names.iter().for_each(|name| bounded(name, &all)));
        }
    });
}

/// Every one of the values, every two, and every two with one of few as the third: it is a number,
/// a replacement or a list.
fn arguments(values: &[Value]) -> Vec<Vec<&Value>> {
    let mut all: Vec<Vec<&Value>> = values.iter().map(|value| vec![value]).collect();
    for first in values {
        for second in values {
            all.push(vec![first, second]);
            let thirds = [0, 5, 10, 16].map(|third| &values[third]);
            all.extend(thirds.map(|third| vec![first, second, third]));
        }
    }
    all
}

fn bounded(name: &str, all: &[Vec<&Value>]) {
    for args in all {
        let held = peak(MOST, || {
            let args = args.iter().copied().cloned().collect();
            drop(call(name, args, &Budget::default()));
        });
        assert!(
            held < MOST,
            "{held} bytes: {name} of {:.200}",
            format!("{args:?}")
        );
    }
}

#[test]
fn spaces_that_indent_nothing_are_not_made() {
    let args = vec![Value::Int(1_000_000_000_000), Value::str("x")];
    let held = peak(MOST, || {
        let made = call("indent", args, &Budget::default());
        assert_eq!(made.as_ref(), Ok(&Value::str("x")));
    });
    assert!(held < 4_096, "{held} bytes");
}

#[test]
fn what_references_to_a_match_bring_is_counted_before() {
    let text = Value::Str("a".repeat(60_000));
    for with in ["$0".repeat(30_000), "${0}b".repeat(30_000)] {
        let args = vec![text.clone(), Value::str("a+"), Value::Str(with)];
        let held = peak(MOST, || {
            let made = call("regex_replace", args, &Budget::default());
            assert_eq!(made, Err("the result is too long".to_owned()));
        });
        assert!(held < 32 << 20, "{held} bytes");
    }
    let rows = Value::List(vec![Value::str("x"); 300]);
    let mut args = vec![Value::Str("%4096s".repeat(40))];
    args.extend((0..40).map(|_| rows.clone()));
    let held = peak(MOST, || {
        let made = call("formatlist", args, &Budget::default());
        assert_eq!(made, Err("the result is too long".to_owned()));
    });
    assert!(held < 64 << 20, "{held} bytes");
}

#[test]
fn searches_are_charged_for_the_text_that_they_may_read() {
    let search = |letters: usize, budget: &Budget| {
        let args = vec![
            Value::Str("A".repeat(letters)),
            Value::str(".*[^A-Z]|[A-Z]"),
            Value::str(""),
        ];
        call("regex_replace", args, budget)
    };
    let steps = |letters: usize| {
        let budget = Budget::default();
        let before = budget.steps_left();
        assert_eq!(search(letters, &budget), Ok(Value::str("")));
        before - budget.steps_left()
    };
    // Twice the text is four times the work, and is said to be.
    let (one, two) = (steps(2_000), steps(4_000));
    assert!(two > one * 3, "{one} and {two} steps");
    // A late search is stopped between two rounds, and long texts are not begun with.
    let late = Budget::ending(Instant::now());
    let refused = search(30_000, &late).expect_err("it is late");
    assert!(refused.contains("longer"), "{refused}");
    let before = Budget::default();
    let refused = search(1 << 20, &before).expect_err("too long");
    assert!(refused.contains("64 KiB"), "{refused}");
    let pattern = vec![
        Value::str("x"),
        Value::Str("\\w".repeat(500_000)),
        Value::str(""),
    ];
    let held = peak(MOST, || {
        let refused = call("regex_replace", pattern, &Budget::default());
        assert!(refused.is_err_and(|why| why.contains("too long") || why.contains("steps")));
    });
    assert!(held < 8 << 20, "{held} bytes");
}
