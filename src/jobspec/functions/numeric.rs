//! Numbers.

use super::super::value::Value;
use super::Outcome;
use super::args::Args;

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "abs" => one(args, f64::abs),
        "ceil" => one(args, f64::ceil),
        "floor" => one(args, f64::floor),
        "signum" => one(args, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        "log" => two(args, |x, base| x.ln() / base.ln()),
        "pow" => two(args, f64::powf),
        "max" => extreme(args, f64::max),
        "min" => extreme(args, f64::min),
        "parseint" => parseint(args),
        _ => return None,
    })
}

fn finite(x: f64) -> Outcome {
    if x.is_finite() {
        Ok(Value::num(x))
    } else {
        Err("the result is not a finite number".into())
    }
}

fn one(args: &mut Args, f: fn(f64) -> f64) -> Outcome {
    let x = args.number()?;
    args.end()?;
    finite(f(x))
}

fn two(args: &mut Args, f: fn(f64, f64) -> f64) -> Outcome {
    let (x, y) = (args.number()?, args.number()?);
    args.end()?;
    finite(f(x, y))
}

fn extreme(args: &mut Args, f: fn(f64, f64) -> f64) -> Outcome {
    let mut best = args.number()?;
    while args.left() > 0 {
        best = f(best, args.number()?);
    }
    finite(best)
}

fn parseint(args: &mut Args) -> Outcome {
    let (text, base) = (args.text()?, args.whole()?);
    args.end()?;
    let base = u32::try_from(base).ok().filter(|b| (2..=36).contains(b));
    let base = base.ok_or("base must be a whole number between 2 and 62 inclusive")?;
    i128::from_str_radix(&text, base)
        .ok()
        .filter(|n| n.unsigned_abs() < 1 << 100)
        .map(Value::Int)
        .ok_or_else(|| format!("cannot parse {text:?} as a base {base} integer"))
}
