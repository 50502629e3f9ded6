//! What one specification may cost, in all parts of its evaluation: steps, bytes, time.
//!
//! Everything that works for one text shares one budget: the text itself, variable files, every
//! template of the JSON form. The budget is checked *before* work is done, reading included: what a
//! call will build follows from its arguments, what the parser will do from the text.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::value::Value;

/// Bytes that may be built.
const BYTES: u64 = 64 << 20;
/// Steps that may be taken: expressions, rounds of loops, comparisons.
const STEPS: u64 = 20_000_000;
/// How long it may take.
const TIME: Duration = Duration::from_secs(10);
/// The clock is looked at once in so many steps.
const LOOK: u64 = 4_096;

/// What is left for one specification.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: Cell<u64>,
    steps: Cell<u64>,
    looked: Cell<u64>,
    end: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self::ending(Instant::now() + TIME)
    }
}

/// What a piece of work costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes it builds.
    pub bytes: u64,
    /// Steps it takes.
    pub steps: u64,
}

impl Budget {
    /// A full one that is used up at a moment.
    pub(super) fn ending(end: Instant) -> Self {
        Self {
            bytes: Cell::new(BYTES),
            steps: Cell::new(STEPS),
            looked: Cell::new(STEPS),
            end,
        }
    }

    /// Takes from it; in words why it cannot.
    pub(super) fn charge(&self, cost: Cost) -> Result<(), String> {
        let bytes = self.bytes.get().checked_sub(cost.bytes);
        let steps = self.steps.get().checked_sub(cost.steps.saturating_add(1));
        self.bytes.set(bytes.unwrap_or(0));
        self.steps.set(steps.unwrap_or(0));
        if bytes.is_none() {
            let most = BYTES >> 20;
            return Err(format!("Evaluating this would build more than {most} MiB."));
        }
        if steps.is_none() {
            return Err(format!(
                "Evaluating this would take more than {STEPS} steps."
            ));
        }
        if self.looked.get() - self.steps.get() >= LOOK {
            self.look()?;
        }
        Ok(())
    }

    /// Looks at the clock; in words that the time is over.
    pub(super) fn look(&self) -> Result<(), String> {
        self.looked.set(self.steps.get());
        if Instant::now() >= self.end {
            // Nothing continues after that, not even what `try` would try next.
            self.steps.set(0);
            self.looked.set(0);
            return Err(format!("Evaluating this takes longer than {TIME:?}."));
        }
        Ok(())
    }

    /// Steps that are left.
    #[cfg(test)]
    pub(super) fn steps_left(&self) -> u64 {
        self.steps.get()
    }

    /// Whether nothing more can be spent.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes.get() == 0 || self.steps.get() == 0
    }
}

/// What a call of a function costs beyond its result, whose weight is at most in proportion to this
/// cost; known before it runs. Searches for patterns charge each round themselves.
pub(super) fn forecast(name: &str, args: &[Value]) -> Cost {
    let all: u64 = args.iter().map(Value::weight).sum();
    let plain = Cost {
        bytes: 0,
        steps: all / 64,
    };
    let text = |n: usize| match args.get(n) {
        Some(Value::Str(text)) => text.as_str(),
        _ => "",
    };
    let length = |value: &Value| match value {
        Value::List(items) => items.len() as u64,
        _ => 1,
    };
    match name {
        "split" => {
            let parts = match text(0) {
                "" => text(1).len(),
                separator => text(1).matches(separator).count() + 1,
            };
            Cost {
                bytes: parts as u64 * 48 + text(1).len() as u64,
                ..plain
            }
        }
        // Every element is compared with every other.
        "setintersection" | "setsubtract" => {
            let most = args.iter().map(length).max().unwrap_or(0);
            let elements = args.iter().map(length).sum::<u64>();
            Cost {
                bytes: all,
                steps: plain.steps.saturating_add(elements.saturating_mul(most)),
            }
        }
        "setunion" | "distinct" | "toset" => Cost {
            bytes: all,
            ..plain
        },
        "setproduct" => product(args),
        "formatlist" => {
            let rows = args.iter().map(length).max().unwrap_or(0);
            let each = args
                .iter()
                .filter(|value| !matches!(value, Value::List(_)))
                .map(Value::weight)
                .sum::<u64>();
            Cost {
                bytes: all.saturating_add(rows.saturating_mul(each)),
                steps: plain.steps.saturating_add(rows),
            }
        }
        "jsondecode" => json(text(0)),
        "yamldecode" => yaml(text(0)),
        "csvdecode" => {
            let mut lines = text(0).lines();
            let head = lines.next().unwrap_or_default();
            let columns = head.split(',').count() as u64;
            let row = 64 + head.len() as u64 + columns * 96;
            Cost {
                bytes: 64 + text(0).len() as u64 + (lines.count() as u64).saturating_mul(row),
                ..plain
            }
        }
        _ => plain,
    }
}

/// Every sign that may begin a value in JSON counts.
fn json(text: &str) -> Cost {
    let signs = text
        .bytes()
        .filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{' | b'\n'));
    let values = signs.count() as u64;
    Cost {
        bytes: values * 96 + text.len() as u64,
        steps: values,
    }
}

/// What one of them costs while YAML is read: the token that the parser holds back until a
/// collection within brackets ends, and the slots of the collection that it may begin.
const YAML_VALUE: u64 = 400;

/// Every sign that may begin or end a value in YAML counts. A dash or a question mark does before a
/// blank only: there each begins a collection, also within one another on one line.
fn yaml(text: &str) -> Cost {
    let bytes = text.as_bytes();
    let is_blank = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
    let signs = bytes.iter().enumerate().filter(|(at, byte)| match byte {
        b',' | b':' | b'[' | b'{' | b'\n' | b'\r' => true,
        b'-' | b'?' => is_blank(at + 1),
        _ => false,
    });
    let values = signs.count() as u64;
    Cost {
        bytes: values
            .saturating_mul(YAML_VALUE)
            .saturating_add(text.len() as u64),
        steps: values,
    }
}

/// Rows of a product at most.
pub(super) const MOST_ROWS: u64 = 65_536;

/// Every row holds one element of each list.
fn product(args: &[Value]) -> Cost {
    let mut rows = 1_u64;
    let mut weight = 0_u64;
    for arg in args {
        let Value::List(items) = arg else { continue };
        let count = items.len() as u64;
        // Each element stands in every row that the other lists make.
        weight = weight
            .saturating_mul(count)
            .saturating_add(rows.saturating_mul(arg.weight()));
        rows = rows.saturating_mul(count);
    }
    if rows > MOST_ROWS {
        // The function itself refuses that, with a better message.
        return Cost::default();
    }
    Cost {
        bytes: weight.saturating_add(rows.saturating_mul(32)),
        steps: rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(number: usize, each: usize) -> Value {
        Value::List((0..number).map(|_| Value::str("x".repeat(each))).collect())
    }

    #[test]
    fn a_forecast_is_not_below_what_is_built() {
        let numbers = |n: usize| Value::List((0..n).map(|n| Value::Int(n as i128)).collect());
        for (name, args) in [
            ("split", vec![Value::str(","), Value::str("a,".repeat(900))]),
            ("split", vec![Value::str(""), Value::str("a".repeat(900))]),
            ("setproduct", vec![list(9, 100), list(8, 10), numbers(7)]),
            ("formatlist", vec![Value::str("%s-x"), list(50, 3)]),
            (
                "jsondecode",
                vec![Value::str(format!("[{}1]", "1,".repeat(500)))],
            ),
            ("yamldecode", vec![Value::str("- ".repeat(50) + "1")]),
            ("yamldecode", vec![Value::str("-\r".repeat(500))]),
            (
                "yamldecode",
                vec![Value::str(format!("[{}1]", "~,".repeat(500)))],
            ),
            ("csvdecode", vec![Value::str("a,b\n1,2\n3,4\n5,6\n")]),
            ("setunion", vec![numbers(100), numbers(50)]),
        ] {
            let cost = forecast(name, &args);
            let made =
                super::super::functions::Functions::Server.call(name, args, &Budget::default());
            let Ok(made) = made else {
                panic!("{name} fails");
            };
            assert!(
                cost.bytes >= made.weight(),
                "{name}: {cost:?} for {}",
                made.weight()
            );
        }
    }

    /// What a parser holds while it reads is many times the text.
    #[test]
    fn yaml_that_would_fill_the_memory_is_not_read() {
        for text in ["- ", "-\r", "-\n", "? ", "[", "~,", "a: "].map(|part| part.repeat(100_000)) {
            let cost = forecast("yamldecode", &[Value::str(text.clone())]);
            assert!(cost.bytes >= 100_000 * YAML_VALUE, "{:?}", &text[..2]);
        }
        // Dashes of words and lines of text are none.
        let text = "-----BEGIN-----".repeat(1_000);
        let cost = forecast("yamldecode", &[Value::str(text.clone())]);
        assert!(cost.bytes <= text.len() as u64 + YAML_VALUE);
    }

    #[test]
    fn bytes_steps_and_time_all_end_it() {
        let bytes = |bytes| Cost { bytes, steps: 0 };
        let steps = |steps| Cost { bytes: 0, steps };
        let budget = Budget::default();
        budget.charge(bytes(BYTES)).unwrap();
        assert!(budget.charge(bytes(1)).unwrap_err().contains("64 MiB"));
        assert!(budget.is_spent());
        let budget = Budget::default();
        assert!(budget.charge(steps(STEPS)).unwrap_err().contains("steps"));
        let budget = Budget::ending(Instant::now());
        let late = (0..=LOOK).find_map(|_| budget.charge(steps(0)).err());
        assert!(late.expect("it is late").contains("longer"));
        assert!(budget.charge(steps(0)).is_err(), "and stays so");
    }
}
