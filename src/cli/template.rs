//! The part of Go's templates that `-t` is used with: fields, `range`, `if`, `with`, variables,
//! pipelines and the common functions.

use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;

/// Renders `text` over `data`.
///
/// # Errors
/// A template that cannot be read, or a function that cannot be applied.
pub(super) fn render(text: &str, data: &Json) -> Result<String> {
    let nodes = parsed(text)?;
    let mut run = TemplateRun {
        out: String::new(),
        root: data,
        names: Vec::new(),
    };
    run.all(&nodes, data)?;
    Ok(run.out)
}

/// Whether a template can be read, for commands that print only after they changed something.
///
/// # Errors
/// The template cannot be read.
pub(super) fn check(text: &str) -> Result<()> {
    parsed(text).map(drop)
}

fn parsed(text: &str) -> Result<Vec<TemplateNode>> {
    let tokens = tokens(text)?;
    let mut at = 0;
    let nodes = parse(&tokens, &mut at, 0)?;
    if at < tokens.len() {
        bail!("template: unexpected {{{{{}}}}}", tokens[at].text());
    }
    Ok(nodes)
}

enum Token {
    Text(String),
    Action(String),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Text(t) | Token::Action(t) => t,
        }
    }
}

fn tokens(mut text: &str) -> Result<Vec<Token>> {
    let mut out = Vec::new();
    let mut trim = false;
    while let Some(start) = text.find("{{") {
        let end = text[start..]
            .find("}}")
            .ok_or_else(|| anyhow!("template: unclosed action"))?
            + start;
        let mut action = &text[start + 2..end];
        let mut before = &text[..start];
        if trim {
            before = before.trim_start();
        }
        if let Some(rest) = action.strip_prefix("- ") {
            before = before.trim_end();
            action = rest;
        }
        trim = action.ends_with(" -");
        out.push(Token::Text(before.to_owned()));
        out.push(Token::Action(
            action.trim_end_matches(" -").trim().to_owned(),
        ));
        text = &text[end + 2..];
    }
    out.push(Token::Text(
        if trim { text.trim_start() } else { text }.to_owned(),
    ));
    Ok(out)
}

enum TemplateNode {
    Text(String),
    Print(String),
    If(String, Vec<TemplateNode>, Vec<TemplateNode>),
    With(String, Vec<TemplateNode>, Vec<TemplateNode>),
    Range(String, Vec<TemplateNode>, Vec<TemplateNode>),
}

fn parse(tokens: &[Token], at: &mut usize, depth: usize) -> Result<Vec<TemplateNode>> {
    if depth > 64 {
        bail!("template: nested too deeply");
    }
    let mut out = Vec::new();
    while let Some(token) = tokens.get(*at) {
        let action = match token {
            Token::Text(text) => {
                out.push(TemplateNode::Text(text.clone()));
                *at += 1;
                continue;
            }
            Token::Action(action) => action,
        };
        let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
        match word {
            "end" | "else" => return Ok(out),
            "if" | "with" | "range" => {
                *at += 1;
                let yes = parse(tokens, at, depth + 1)?;
                let mut no = Vec::new();
                if let Some(Token::Action(a)) = tokens.get(*at)
                    && (a == "else" || a.starts_with("else "))
                {
                    if let Some(chained) = a.strip_prefix("else if ") {
                        *at += 1;
                        let inner = parse(tokens, at, depth + 1)?;
                        let rest = rest_of_chain(tokens, at, depth)?;
                        no = vec![TemplateNode::If(chained.to_owned(), inner, rest)];
                    } else {
                        *at += 1;
                        no = parse(tokens, at, depth + 1)?;
                    }
                }
                if !matches!(tokens.get(*at), Some(Token::Action(a)) if a == "end") {
                    bail!("template: {word} without end");
                }
                *at += 1;
                let rest = rest.to_owned();
                out.push(match word {
                    "if" => TemplateNode::If(rest, yes, no),
                    "with" => TemplateNode::With(rest, yes, no),
                    _ => TemplateNode::Range(rest, yes, no),
                });
            }
            _ => {
                if !action.starts_with("/*") {
                    out.push(TemplateNode::Print(action.clone()));
                }
                *at += 1;
            }
        }
    }
    Ok(out)
}

fn rest_of_chain(tokens: &[Token], at: &mut usize, depth: usize) -> Result<Vec<TemplateNode>> {
    match tokens.get(*at) {
        Some(Token::Action(a)) if a.starts_with("else if ") => {
            let cond = a["else if ".len()..].to_owned();
            *at += 1;
            let yes = parse(tokens, at, depth + 1)?;
            let no = rest_of_chain(tokens, at, depth + 1)?;
            Ok(vec![TemplateNode::If(cond, yes, no)])
        }
        Some(Token::Action(a)) if a == "else" => {
            *at += 1;
            parse(tokens, at, depth + 1)
        }
        _ => Ok(Vec::new()),
    }
}

struct TemplateRun<'a> {
    out: String,
    root: &'a Json,
    names: Vec<(String, Json)>,
}

impl TemplateRun<'_> {
    fn all(&mut self, nodes: &[TemplateNode], dot: &Json) -> Result<()> {
        let depth = self.names.len();
        for node in nodes {
            match node {
                TemplateNode::Text(text) => self.out.push_str(text),
                TemplateNode::Print(action) => self.print(action, dot)?,
                TemplateNode::If(cond, yes, no) => {
                    let branch = if truth(&self.pipeline(cond, dot)?) {
                        yes
                    } else {
                        no
                    };
                    self.all(branch, dot)?;
                }
                TemplateNode::With(expr, yes, no) => {
                    let value = self.pipeline(expr, dot)?;
                    if truth(&value) {
                        self.all(yes, &value)?
                    } else {
                        self.all(no, dot)?
                    }
                }
                TemplateNode::Range(expr, body, empty) => self.range(expr, body, empty, dot)?,
            }
        }
        self.names.truncate(depth);
        Ok(())
    }

    fn print(&mut self, action: &str, dot: &Json) -> Result<()> {
        if let Some((name, expr)) = action.split_once(":=").or_else(|| action.split_once(" = "))
            && name.trim().starts_with('$')
        {
            let value = self.pipeline(expr, dot)?;
            self.names.push((name.trim().to_owned(), value));
            return Ok(());
        }
        let value = self.pipeline(action, dot)?;
        self.out.push_str(&show(&value));
        Ok(())
    }

    fn range(
        &mut self,
        expr: &str,
        body: &[TemplateNode],
        empty: &[TemplateNode],
        dot: &Json,
    ) -> Result<()> {
        let (names, expr) = match expr.split_once(":=") {
            Some((names, expr)) => (
                names.split(',').map(|n| n.trim().to_owned()).collect(),
                expr,
            ),
            None => (Vec::new(), expr),
        };
        let value = self.pipeline(expr, dot)?;
        let items: Vec<(Json, Json)> = match value {
            Json::Array(items) => items
                .into_iter()
                .enumerate()
                .map(|(i, v)| (Json::from(i), v))
                .collect(),
            Json::Object(map) => map.into_iter().map(|(k, v)| (Json::String(k), v)).collect(),
            _ => Vec::new(),
        };
        if items.is_empty() {
            return self.all(empty, dot);
        }
        for (key, item) in items {
            let depth = self.names.len();
            match names.as_slice() {
                [one] => self.names.push((one.clone(), item.clone())),
                [first, second, ..] => {
                    self.names.push((first.clone(), key));
                    self.names.push((second.clone(), item.clone()));
                }
                [] => {}
            }
            self.all(body, &item)?;
            self.names.truncate(depth);
        }
        Ok(())
    }

    fn pipeline(&self, text: &str, dot: &Json) -> Result<Json> {
        let mut value = None;
        for part in split_top(text, '|') {
            let mut words = split_top(part.trim(), ' ');
            words.retain(|w| !w.is_empty());
            value = Some(self.command(&words, value, dot)?);
        }
        value.ok_or_else(|| anyhow!("template: missing value for command"))
    }

    fn command(&self, words: &[&str], piped: Option<Json>, dot: &Json) -> Result<Json> {
        let Some(first) = words.first() else {
            bail!("template: missing value for command")
        };
        if words.len() == 1 && piped.is_none() && !FUNCTIONS.contains(first) {
            return self.term(first, dot);
        }
        let mut args = words[1..]
            .iter()
            .map(|w| self.term(w, dot))
            .collect::<Result<Vec<_>>>()?;
        args.extend(piped);
        function(first, &args)
    }

    fn term(&self, word: &str, dot: &Json) -> Result<Json> {
        if let Some(inner) = word.strip_prefix('(') {
            let (inner, rest) = inner
                .rsplit_once(')')
                .ok_or_else(|| anyhow!("template: unclosed ("))?;
            return field(&self.pipeline(inner, dot)?, rest);
        }
        if let Some(rest) = word.strip_prefix('$') {
            let end = rest.find('.').unwrap_or(rest.len());
            let name = &word[..=end];
            if name == "$" {
                return field(self.root, &rest[end..]);
            }
            let value = self
                .names
                .iter()
                .rev()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v);
            return field(
                value.ok_or_else(|| anyhow!("template: undefined variable {name:?}"))?,
                &rest[end..],
            );
        }
        match word.chars().next() {
            Some('.') => field(dot, word),
            Some('"' | '`') => Ok(serde_json::from_str(&word.replace('`', "\""))?),
            Some(c) if c.is_ascii_digit() || c == '-' => Ok(serde_json::from_str(word)?),
            _ if word == "true" => Ok(Json::Bool(true)),
            _ if word == "false" => Ok(Json::Bool(false)),
            _ if word == "nil" => Ok(Json::Null),
            _ if FUNCTIONS.contains(&word) => function(word, &[]),
            _ => bail!("template: function {word:?} not defined"),
        }
    }
}

/// Splits outside of quotes and parentheses.
fn split_top(text: &str, at: char) -> Vec<&str> {
    let (mut out, mut start, mut depth, mut quote) = (Vec::new(), 0, 0, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q && !text[..i].ends_with('\\') => quote = None,
            (Some(_), _) => {}
            (None, '"' | '`') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, c) if c == at && depth == 0 => {
                out.push(&text[start..i]);
                start = i + c.len_utf8();
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn field(value: &Json, path: &str) -> Result<Json> {
    let mut value = value;
    for name in path.split('.').filter(|n| !n.is_empty()) {
        if value.is_null() {
            return Ok(Json::Null);
        }
        let map = value
            .as_object()
            .ok_or_else(|| anyhow!("template: can't evaluate field {name}"))?;
        value = map
            .get(name)
            .ok_or_else(|| anyhow!("template: can't evaluate field {name}"))?;
    }
    Ok(value.clone())
}

fn truth(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(b) => *b,
        Json::Number(n) => n.as_f64() != Some(0.0),
        Json::String(s) => !s.is_empty(),
        Json::Array(a) => !a.is_empty(),
        Json::Object(m) => !m.is_empty(),
    }
}

fn show(value: &Json) -> String {
    match value {
        Json::Null => "<nil>".to_owned(),
        Json::String(s) => s.clone(),
        Json::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
        Json::Object(map) => {
            let pairs = map.iter().map(|(k, v)| format!("{k}:{}", show(v)));
            format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

const FUNCTIONS: [&str; 18] = [
    "len", "index", "printf", "print", "println", "eq", "ne", "lt", "le", "gt", "ge", "and", "or",
    "not", "json", "toJSON", "toUpper", "toLower",
];

fn function(name: &str, args: &[Json]) -> Result<Json> {
    let arg = |n: usize| {
        args.get(n)
            .ok_or_else(|| anyhow!("template: wrong number of args for {name}"))
    };
    let compare = || -> Result<std::cmp::Ordering> {
        match (arg(0)?.as_f64(), arg(1)?.as_f64()) {
            (Some(a), Some(b)) => a
                .partial_cmp(&b)
                .ok_or_else(|| anyhow!("template: cannot compare")),
            _ => Ok(show(arg(0)?).cmp(&show(arg(1)?))),
        }
    };
    Ok(match name {
        "len" => match arg(0)? {
            Json::Array(a) => a.len().into(),
            Json::Object(m) => m.len().into(),
            Json::String(s) => s.len().into(),
            _ => 0.into(),
        },
        "index" => {
            let mut value = arg(0)?.clone();
            for key in &args[1..] {
                value = match (&value, key) {
                    (Json::Array(a), Json::Number(n)) => {
                        let at = n.as_u64().and_then(|n| usize::try_from(n).ok());
                        at.and_then(|n| a.get(n))
                            .cloned()
                            .ok_or_else(|| anyhow!("template: index out of range: {n}"))?
                    }
                    (other, key) => other.get(show(key)).cloned().unwrap_or(Json::Null),
                };
            }
            value
        }
        "print" | "println" => {
            let text = args.iter().map(show).collect::<Vec<_>>().join(" ");
            Json::String(if name == "println" { text + "\n" } else { text })
        }
        "printf" => Json::String(printf(&show(arg(0)?), &args[1..])),
        "eq" => Json::Bool(args[1..].iter().any(|a| Some(a) == args.first())),
        "ne" => Json::Bool(arg(0)? != arg(1)?),
        "lt" => Json::Bool(compare()?.is_lt()),
        "le" => Json::Bool(compare()?.is_le()),
        "gt" => Json::Bool(compare()?.is_gt()),
        "ge" => Json::Bool(compare()?.is_ge()),
        "not" => Json::Bool(!truth(arg(0)?)),
        "and" => args
            .iter()
            .find(|a| !truth(a))
            .or(args.last())
            .cloned()
            .unwrap_or(Json::Null),
        "or" => args
            .iter()
            .find(|a| truth(a))
            .or(args.last())
            .cloned()
            .unwrap_or(Json::Null),
        "json" | "toJSON" => Json::String(arg(0)?.to_string()),
        "toUpper" => Json::String(show(arg(0)?).to_uppercase()),
        "toLower" => Json::String(show(arg(0)?).to_lowercase()),
        _ => bail!("template: function {name:?} not defined"),
    })
}

fn printf(pattern: &str, args: &[Json]) -> String {
    let mut out = String::new();
    let mut args = args.iter();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut width = String::new();
        let verb = loop {
            match chars.next() {
                Some(c) if c.is_ascii_digit() || matches!(c, '-' | '.' | '+' | '#') => {
                    width.push(c)
                }
                other => break other,
            }
        };
        let text = match verb {
            Some('%') => "%".to_owned(),
            Some('q') => args
                .next()
                .map(|a| Json::String(show(a)).to_string())
                .unwrap_or_default(),
            Some('.') | None => String::new(),
            Some(_) => args
                .next()
                .map(show)
                .unwrap_or_else(|| "%!(MISSING)".to_owned()),
        };
        let (left, size) = width
            .strip_prefix('-')
            .map_or((false, width.as_str()), |w| (true, w));
        let size: usize = size.parse().unwrap_or(0).min(1000);
        out += &if left {
            format!("{text:<size$}")
        } else {
            format!("{text:>size$}")
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_as_users_write_them() {
        let list = json!([{"A": 1, "B": "b"}, {"A": 2, "B": ""}]);
        let data = json!({"ID": "x", "N": 3, "L": list, "M": {"k": "v"}, "Z": null});
        for (text, expected) in [
            ("{{.ID}}-{{ .N }}", "x-3"),
            ("{{range .L}}{{.A}} {{end}}", "1 2 "),
            (
                "{{range $i, $e := .L}}{{$i}}={{$e.A}};{{$.ID}} {{end}}",
                "0=1;x 1=2;x ",
            ),
            (
                "{{range .L}}{{if .B}}{{.B}}{{else}}none{{end}},{{end}}",
                "b,none,",
            ),
            (
                "{{if eq .N 2}}two{{else if eq .N 3}}three{{else}}many{{end}}",
                "three",
            ),
            ("{{len .L}} {{index .M \"k\"}} {{(index .L 1).A}}", "2 v 2"),
            ("{{printf \"%s|%5d|%-3s|\" .ID .N \"a\"}}", "x|    3|a  |"),
            ("{{.M | json}}", "{\"k\":\"v\"}"),
            ("a {{- .ID -}}  b", "axb"),
            (
                "{{with .Z}}no{{else}}nil{{end}}{{with .M}}{{.k}}{{end}}",
                "nilv",
            ),
            ("{{range $k, $v := .M}}{{$k}}:{{$v}}{{end}}", "k:v"),
            ("{{$x := .ID}}{{$x}}{{not .Z}}{{and .N .ID}}", "xtruex"),
        ] {
            assert_eq!(render(text, &data).expect(text), expected, "{text}");
        }
        for text in [
            "{{",
            "{{.Nope}}",
            "{{if .ID}}",
            "{{nope 1}}",
            "{{end}}",
            "{{index .L 9}}",
        ] {
            assert!(render(text, &data).is_err(), "{text}");
        }
    }
}
