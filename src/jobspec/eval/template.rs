//! Strings and heredocs with `${…}` and `%{…}` in them. What they build is charged to the budget of
//! the specification (`budget.rs`), which bounds the work of one parse.

use super::super::value::Value;
use super::{Diagnostic, Evaluated, Evaluator, Scope};
use hcl_edit::Span;
use hcl_edit::template::{
    Directive, Element, ForDirective, HeredocTemplate, IfDirective, Interpolation, Strip, Template,
};
use std::ops::Range;

/// A piece of a result: text, with whether white space beside it is to be cut.
#[derive(Default)]
struct Pieces {
    text: String,
    trim_next: bool,
    /// In a heredoc cutting ends with the line.
    by_line: bool,
    /// White space to be cut from the lines within directives: the parser does it outside only.
    indent: usize,
    depth: usize,
}

impl Pieces {
    fn literal(&mut self, text: &str) {
        let dedented;
        let text = if self.depth > 0 && self.indent > 0 {
            dedented = dedent(text, self.indent);
            &dedented
        } else {
            text
        };
        let text = if !self.trim_next {
            text
        } else if self.by_line {
            let line = text.find('\n').map_or(text.len(), |at| at + 1);
            let cut = line - text[..line].trim_start().len();
            &text[cut..]
        } else {
            text.trim_start()
        };
        self.trim_next = self.trim_next && text.is_empty() && !self.by_line;
        self.text.push_str(text);
    }

    fn before(&mut self, strip: Strip) {
        if strip.strip_start() {
            let line = match self.by_line {
                true => self.text.rfind('\n').map_or(0, |at| at + 1),
                false => 0,
            };
            let kept = line + self.text[line..].trim_end().len();
            self.text.truncate(kept);
        }
        self.trim_next = false;
    }

    fn after(&mut self, strip: Strip) {
        self.trim_next = strip.strip_end();
    }
}

/// Cuts up to `indent` white space from the beginning of every line but the first.
fn dedent(text: &str, indent: usize) -> String {
    let mut lines = text.split_inclusive('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let space = line.len() - line.trim_start_matches([' ', '\t']).len();
        out.push_str(&line[space.min(indent)..]);
    }
    out
}

/// Bytes that a template writes whatever its values are, at most.
fn literals(template: &Template) -> u64 {
    let literal = |element: &Element| match element {
        Element::Literal(text) => text.len() as u64,
        _ => 0,
    };
    template.iter().map(literal).sum()
}

impl Evaluator<'_> {
    /// A quoted template. One that is a single interpolation gives that value itself.
    pub(super) fn template<'t>(
        &self,
        mut elements: impl Iterator<Item = &'t Element>,
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        let first = elements.next();
        let second = elements.next();
        if let (Some(Element::Interpolation(only)), None) = (first, second) {
            return self.eval(&only.expr, scope);
        }
        let mut out = Pieces::default();
        for element in first.into_iter().chain(second).chain(elements) {
            self.element(element, scope, &mut out)?;
        }
        self.charge(out.text.len() as u64, span)?;
        Ok(Value::Str(out.text))
    }

    /// Evaluates a template that stands for itself, as strings of the JSON form do.
    pub(crate) fn bare_template(&self, template: &Template, scope: &Scope<'_>) -> Evaluated {
        self.template(template.iter(), scope, template.span())
    }

    pub(super) fn heredoc(
        &self,
        heredoc: &HeredocTemplate,
        scope: &Scope<'_>,
        span: Option<Range<usize>>,
    ) -> Evaluated {
        let mut out = Pieces {
            by_line: true,
            indent: heredoc.indent().unwrap_or(0),
            ..Pieces::default()
        };
        for element in heredoc.template.iter() {
            self.element(element, scope, &mut out)?;
        }
        self.charge(out.text.len() as u64, span)?;
        Ok(Value::Str(out.text))
    }

    fn element(
        &self,
        element: &Element,
        scope: &Scope<'_>,
        out: &mut Pieces,
    ) -> Result<(), Box<Diagnostic>> {
        match element {
            Element::Literal(text) => out.literal(text),
            Element::Interpolation(i) => self.interpolation(i, scope, out)?,
            Element::Directive(d) => match d.as_ref() {
                Directive::If(d) => self.if_directive(d, scope, out)?,
                Directive::For(d) => self.for_directive(d, scope, out)?,
            },
        }
        Ok(())
    }

    fn interpolation(
        &self,
        i: &Interpolation,
        scope: &Scope<'_>,
        out: &mut Pieces,
    ) -> Result<(), Box<Diagnostic>> {
        let value = self.eval(&i.expr, scope)?;
        let Some(text) = value.to_text() else {
            let detail = match value {
                Value::Null => "The expression result is null. Cannot include a null value in a \
                    string template."
                    .to_owned(),
                _ => "Cannot include the given value in a string template: string \
                    required."
                    .to_owned(),
            };
            return Err(self.problem(
                i.expr.span(),
                "Invalid template interpolation value",
                detail,
            ));
        };
        self.charge(text.len() as u64, i.expr.span())?;
        out.before(i.strip);
        out.text.push_str(&text);
        out.after(i.strip);
        Ok(())
    }

    fn inner(
        &self,
        template: &Template,
        scope: &Scope<'_>,
        out: &mut Pieces,
    ) -> Result<(), Box<Diagnostic>> {
        let before = out.text.len();
        out.depth += 1;
        for element in template.iter() {
            self.element(element, scope, out)?;
        }
        out.depth -= 1;
        self.charge(
            out.text.len().saturating_sub(before) as u64,
            template.span(),
        )
    }

    fn if_directive(
        &self,
        d: &IfDirective,
        scope: &Scope<'_>,
        out: &mut Pieces,
    ) -> Result<(), Box<Diagnostic>> {
        let cond = self.eval(&d.if_expr.cond_expr, scope)?;
        let Some(cond) = cond.to_bool() else {
            let detail = "The condition expression must be of type bool.";
            let span = d.if_expr.cond_expr.span();
            return Err(self.problem(span, "Incorrect condition type", detail));
        };
        out.before(d.if_expr.strip);
        if cond {
            out.after(d.if_expr.strip);
            self.inner(&d.if_expr.template, scope, out)?;
        }
        if let Some(other) = &d.else_expr {
            if cond {
                out.before(other.strip);
            } else {
                out.after(other.strip);
                self.inner(&other.template, scope, out)?;
            }
        }
        out.before(d.endif_expr.strip);
        out.after(d.endif_expr.strip);
        Ok(())
    }

    fn for_directive(
        &self,
        d: &ForDirective,
        scope: &Scope<'_>,
        out: &mut Pieces,
    ) -> Result<(), Box<Diagnostic>> {
        let f = &d.for_expr;
        let collection = self.eval(&f.collection_expr, scope)?;
        out.before(f.strip);
        for (key, value) in self.pairs(collection, f.collection_expr.span())? {
            // Charge the iteration's literals before it runs.
            self.charge(literals(&f.template), f.collection_expr.span())?;
            let mut inner = scope.child();
            if let Some(name) = &f.key_var {
                inner.set(name.as_str(), key);
            }
            inner.set(f.value_var.as_str(), value);
            out.after(f.strip);
            self.inner(&f.template, &inner, out)?;
            out.before(d.endfor_expr.strip);
        }
        out.before(d.endfor_expr.strip);
        out.after(d.endfor_expr.strip);
        Ok(())
    }
}
