//! From a text and variables to a job in the API's form.

use super::api::ApiJob;
use super::bounds;
use super::budget::Budget;
use super::decode::Decoder;
use super::diagnostic::{Diagnostics, SourceText};
use super::eval::{Evaluator, Scope};
use super::functions::Functions;
use super::json::JsonReader;
use super::locals::{self, Local};
use super::tree::{self, Block};
use super::types;
use super::value::Value;
use super::variables::{self, Variable, Variables};
use drover_events::field::Specified;
use drover_events::model::Job;
use hcl_edit::Span;
use hcl_edit::expr::{Expression, TraversalOperator};
use hcl_edit::structure::{Body, Structure};
use hcl_edit::visit::Visit;
use serde_json::{Map, Value as Json};

/// What to parse, with everything given for its variables.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The text's name in diagnostics; a server says `input.hcl`.
    pub name: &'a str,
    /// The text: HCL, or the JSON form of it.
    pub text: &'a str,
    /// `NOMAD_VAR_…` of the environment, prefix removed.
    pub env: Vec<(String, String)>,
    /// Variable files: name and text, weakest first.
    pub files: Vec<(String, String)>,
    /// `-var name=value`, the last wins.
    pub flags: Vec<(String, String)>,
    /// Refuse values for variables that are not declared.
    pub strict: bool,
    /// Which functions may be called.
    pub functions: Functions,
}

impl<'a> Input<'a> {
    /// A text alone, as a server parses it.
    pub fn server(text: &'a str) -> Input<'a> {
        Input {
            name: "input.hcl",
            text,
            env: Vec::new(),
            files: Vec::new(),
            flags: Vec::new(),
            strict: true,
            functions: Functions::Server,
        }
    }
}

/// Parses a specification.
///
/// # Errors
/// Every problem, with its location.
pub fn parse(input: &Input<'_>) -> Result<ApiJob, Diagnostics> {
    let source = SourceText::new(input.name, input.text);
    let mut problems = Diagnostics::default();
    if input.text.trim().is_empty() {
        return Err(source
            .problem(None, "Missing job block", "A job block is required")
            .into());
    }
    let job = if input.text.trim_start().starts_with('{') {
        from_hcl_json(input, &source, &mut problems)
    } else {
        from_native(input, &source, &mut problems)
    };
    match job {
        Some(job) if problems.is_empty() => Ok(ApiJob::from_fields(job)),
        _ => Err(problems),
    }
}

/// Evaluates a text that is no job, such as a variable's or a namespace's specification:
/// attributes by name, blocks of one type as a list.
///
/// # Errors
/// Every problem, with its location.
pub fn parse_other_spec(name: &str, text: &str) -> Result<Json, Diagnostics> {
    let source = SourceText::new(name, text);
    let budget = Budget::default();
    let body = bounds::parse(&source, &budget)?;
    let mut problems = Diagnostics::default();
    let ev = Evaluator::new(&source, &Functions::Server, &budget);
    let value = tree::build(&ev, &body, &Scope::default(), &mut problems).to_value();
    if problems.is_empty() {
        Ok(value.to_json())
    } else {
        Err(problems)
    }
}

fn from_native(
    input: &Input<'_>,
    source: &SourceText,
    problems: &mut Diagnostics,
) -> Option<Map<String, Json>> {
    let budget = Budget::default();
    let body = bounds::parse(source, &budget);
    let body = body.map_err(|p| problems.push(p)).ok()?;
    let ev = Evaluator::new(source, &input.functions, &budget);
    let mut declared = Variables::new();
    let mut local_exprs = Vec::new();
    let mut job = None;
    for structure in &body {
        let block = match structure {
            Structure::Block(block) => block,
            Structure::Attribute(a) => {
                let detail = format!(
                    "An argument named {:?} is not expected here.",
                    a.key.as_str()
                );
                problems.push(source.problem(a.key.span(), "Unsupported argument", detail));
                continue;
            }
        };
        match block.ident.as_str() {
            "variable" => variables::read(&ev, block, &mut declared, problems),
            "variables" => read_variables_block(&ev, &block.body, &mut declared, problems),
            "locals" => local_exprs.extend(read_locals(source, &block.body, problems)),
            "job" if job.is_none() => job = Some(block),
            "job" => {
                let first = job
                    .and_then(tree::head)
                    .map(|p| source.location(p).to_string());
                let detail = format!(
                    "Only one block of type \"job\" is allowed. Previous definition was at {}",
                    first.unwrap_or_default()
                );
                problems.push(source.problem(tree::head(block), "Duplicate job block", detail));
            }
            other => {
                let detail = format!("Blocks of type {other:?} are not expected here.");
                problems.push(source.problem(tree::head(block), "Unsupported block type", detail));
            }
        }
    }
    let Some(job) = job else {
        problems.push(source.problem(None, "Missing job block", "A job block is required"));
        return None;
    };
    let mut scope = Scope::default();
    assign_values(input, &ev, &mut declared, &mut scope, problems);
    if report_unset(source, &body, &declared, problems) {
        return None;
    }
    locals::evaluate(&ev, &local_exprs, &mut scope, problems);
    let block = tree::block(&ev, job, &scope, problems);
    decode(source, block, problems)
}

fn decode(
    source: &SourceText,
    block: Block,
    problems: &mut Diagnostics,
) -> Option<Map<String, Json>> {
    if block.labels.len() != 1 {
        let detail = "All job blocks must have 1 labels (name).";
        problems.push(source.problem(block.location, "Missing name for job", detail));
        return None;
    }
    Some(Decoder { source, problems }.block(Job::SHAPE, &block))
}

fn read_variables_block(
    ev: &Evaluator<'_>,
    body: &Body,
    into: &mut Variables,
    problems: &mut Diagnostics,
) {
    for a in body.attributes() {
        match ev.eval(&a.value, &Scope::default()) {
            Ok(value) => {
                let variable = Variable {
                    value: Some(value),
                    from: "default",
                    location: a.key.span(),
                    ..Variable::default()
                };
                variables::declare(ev.source, a.key.as_str(), variable, into, problems);
            }
            Err(problem) => problems.push(*problem),
        }
    }
}

fn read_locals(source: &SourceText, body: &Body, problems: &mut Diagnostics) -> Vec<Local> {
    for block in body.blocks() {
        let detail = "Blocks are not allowed here.";
        problems.push(source.problem(block.ident.span(), "Unexpected block", detail));
    }
    let local = |a: &hcl_edit::structure::Attribute| Local {
        name: a.key.as_str().to_owned(),
        expr: a.value.clone(),
        location: a.key.span(),
    };
    body.attributes().map(local).collect()
}

/// Lays all values from outside over the defaults, checks them, and puts them into the scope.
fn assign_values(
    input: &Input<'_>,
    ev: &Evaluator<'_>,
    declared: &mut Variables,
    scope: &mut Scope<'_>,
    problems: &mut Diagnostics,
) {
    for (name, text) in &input.env {
        variables::set_text(ev, declared, name, text, "environment", problems);
    }
    for (name, text) in &input.files {
        variables::set_file(
            declared,
            name,
            text,
            input.strict,
            (&input.functions, ev.budget),
            problems,
        );
    }
    for (name, text) in &input.flags {
        if !declared.contains_key(name) && input.strict {
            let detail = format!(
                "A {name:?} variable was passed in the command line but was not found in known \
                    variables."
            );
            problems.push(ev.source.problem(None, "Undefined -var variable", detail));
        }
        variables::set_text(ev, declared, name, text, "-var", problems);
    }
    variables::check(ev, declared, problems);
    let values = declared
        .iter()
        .filter_map(|(n, v)| Some((n.clone(), v.value.clone()?)))
        .collect();
    scope.set("var", Value::Map(values));
}

/// Finds uses of variables that have no value, so that they are named as such.
fn report_unset(
    source: &SourceText,
    body: &Body,
    declared: &Variables,
    problems: &mut Diagnostics,
) -> bool {
    struct Uses<'a>(&'a Variables, Vec<(String, Option<std::ops::Range<usize>>)>);
    impl Visit for Uses<'_> {
        fn visit_traversal(&mut self, node: &hcl_edit::expr::Traversal) {
            if let Expression::Variable(root) = &node.expr
                && root.as_str() == "var"
                && let Some(TraversalOperator::GetAttr(name)) =
                    node.operators.first().map(|o| o.value())
                && self.0.get(name.as_str()).is_some_and(|v| v.value.is_none())
            {
                self.1.push((name.as_str().to_owned(), node.span()));
            }
            hcl_edit::visit::visit_traversal(self, node);
        }
    }
    if declared.values().all(|v| v.value.is_some()) {
        return false;
    }
    let mut uses = Uses(declared, Vec::new());
    uses.visit_body(body);
    let mut named = std::collections::BTreeSet::new();
    for (name, location) in uses.1 {
        if named.insert(name.clone()) {
            // Each is looked for in its line, which may be as long as the text.
            if problems.is_full() {
                break;
            }
            let detail = "A used variable must be set or have a default value.";
            problems.push(source.problem(location, format!("Unset variable {name:?}"), detail));
        }
    }
    !named.is_empty()
}

/// A specification in HCL's JSON; API JSON is read by [`ApiJob::from_json`].
fn from_hcl_json(
    input: &Input<'_>,
    source: &SourceText,
    problems: &mut Diagnostics,
) -> Option<Map<String, Json>> {
    let budget = Budget::default();
    let root = bounds::json(source, &budget);
    let root = root.map_err(|p| problems.push(p)).ok()?;
    let ev = Evaluator::new(source, &input.functions, &budget);
    let mut declared = Variables::new();
    json_variables(&ev, &root, &mut declared, problems);
    let mut scope = Scope::default();
    assign_values(input, &ev, &mut declared, &mut scope, problems);
    json_locals(source, &ev, &root, &mut scope, problems);
    for key in root.keys() {
        if !["job", "variable", "variables", "locals", "//"].contains(&key.as_str()) {
            let detail = format!("No argument or block type is named {key:?}.");
            problems.push(source.problem(None, "Extraneous JSON object property", detail));
        }
    }
    let reader = JsonReader {
        source,
        evaluator: &ev,
        scope: &scope,
    };
    let Some(job) = root.get("job") else {
        problems.push(source.problem(None, "Missing job block", "A job block is required"));
        return None;
    };
    let mut blocks = reader.blocks("job", job, 1, Job::SHAPE, problems);
    if blocks.len() > 1 {
        let detail = "Only one block of type \"job\" is allowed.";
        problems.push(source.problem(None, "Duplicate job block", detail));
    }
    decode(source, blocks.pop()?, problems)
}

fn json_objects(json: Option<&Json>) -> Vec<&Map<String, Json>> {
    match json {
        Some(Json::Object(map)) => vec![map],
        Some(Json::Array(items)) => items.iter().filter_map(Json::as_object).collect(),
        _ => Vec::new(),
    }
}

fn json_variables(
    ev: &Evaluator<'_>,
    root: &Map<String, Json>,
    declared: &mut Variables,
    problems: &mut Diagnostics,
) {
    let source = ev.source;
    for (name, value) in json_objects(root.get("variables")).into_iter().flatten() {
        let value = Some(Value::from_json(value));
        let variable = Variable {
            value,
            from: "default",
            ..Variable::default()
        };
        variables::declare(source, name, variable, declared, problems);
    }
    for (name, body) in json_objects(root.get("variable")).into_iter().flatten() {
        let mut variable = Variable {
            from: "default",
            ..Variable::default()
        };
        for body in json_objects(Some(body)) {
            variable.value = body.get("default").map(Value::from_json).or(variable.value);
            let Some(type_text) = body.get("type").and_then(Json::as_str) else {
                continue;
            };
            let type_text = type_text.trim_start_matches("${").trim_end_matches('}');
            let parsed = bounds::expression(type_text, ev.budget);
            match parsed.and_then(|expr| types::parse(&expr)) {
                Ok(value_type) => variable.value_type = Some(value_type),
                Err(text) => {
                    problems.push(source.problem(None, "Invalid type specification", text))
                }
            }
        }
        variables::convert_default(source, name, &mut variable, problems);
        variables::declare(source, name, variable, declared, problems);
    }
}

fn json_locals(
    source: &SourceText,
    ev: &Evaluator<'_>,
    root: &Map<String, Json>,
    scope: &mut Scope<'_>,
    problems: &mut Diagnostics,
) {
    for (name, json) in json_objects(root.get("locals")).into_iter().flatten() {
        let value = JsonReader {
            source,
            evaluator: ev,
            scope,
        }
        .value(json, problems);
        let mut values = match scope.take("local") {
            Some(Value::Map(values)) => values,
            _ => std::collections::BTreeMap::new(),
        };
        values.insert(name.clone(), value.unwrap_or(Value::Null));
        scope.set("local", Value::Map(values));
    }
}
