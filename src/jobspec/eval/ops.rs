//! Operators.

use super::super::value::Value;
use super::{Evaluated, Evaluator, Scope};
use hcl_edit::Span;
use hcl_edit::expr::{BinaryOp, BinaryOperator, Expression, UnaryOp, UnaryOperator};

impl Evaluator<'_> {
    pub(super) fn unary(&self, op: &UnaryOp, scope: &Scope<'_>) -> Evaluated {
        let value = self.eval(&op.expr, scope)?;
        let wrong = |detail: &str| self.problem(op.expr.span(), "Invalid operand", detail);
        match op.operator.value() {
            UnaryOperator::Not => value
                .to_bool()
                .map(|b| Value::Bool(!b))
                .ok_or_else(|| wrong("Unsuitable value for unary operand: bool required.")),
            UnaryOperator::Neg => match value.to_number() {
                Some(Value::Int(n)) => Ok(Value::Int(-n)),
                Some(Value::Float(x)) => Ok(Value::Float(-x)),
                _ => Err(wrong(
                    "Unsuitable value for unary operand: a number is required.",
                )),
            },
        }
    }

    pub(super) fn binary(&self, op: &BinaryOp, scope: &Scope<'_>) -> Evaluated {
        use BinaryOperator as Op;
        let operator = *op.operator.value();
        let left = self.eval(&op.lhs_expr, scope)?;
        if matches!(operator, Op::And | Op::Or) {
            let left = self.boolean(&left, &op.lhs_expr)?;
            if left == (operator == Op::Or) {
                return Ok(Value::Bool(left));
            }
            let right = self.eval(&op.rhs_expr, scope)?;
            return self.boolean(&right, &op.rhs_expr).map(Value::Bool);
        }
        let right = self.eval(&op.rhs_expr, scope)?;
        match operator {
            Op::Eq => return Ok(Value::Bool(left == right)),
            Op::NotEq => return Ok(Value::Bool(left != right)),
            _ => {}
        }
        let left = self.number(&left, &op.lhs_expr)?;
        let right = self.number(&right, &op.rhs_expr)?;
        let span = op
            .lhs_expr
            .span()
            .zip(op.rhs_expr.span())
            .map(|(a, b)| a.start..b.end);
        let float = |v: &Value| v.as_f64().unwrap_or(0.0);
        let (x, y) = (float(&left), float(&right));
        let result = match operator {
            Op::Less => Value::Bool(x < y),
            Op::LessEq => Value::Bool(x <= y),
            Op::Greater => Value::Bool(x > y),
            Op::GreaterEq => Value::Bool(x >= y),
            Op::Plus => checked_int_op(&left, &right, i128::checked_add)
                .unwrap_or_else(|| Value::num(x + y)),
            Op::Minus => checked_int_op(&left, &right, i128::checked_sub)
                .unwrap_or_else(|| Value::num(x - y)),
            Op::Mul => checked_int_op(&left, &right, i128::checked_mul)
                .unwrap_or_else(|| Value::num(x * y)),
            Op::Div | Op::Mod if y == 0.0 => {
                let detail = "Cannot divide by zero.";
                return Err(self.problem(span, "Division by zero", detail));
            }
            Op::Div => Value::num(x / y),
            Op::Mod => checked_int_op(&left, &right, i128::checked_rem)
                .unwrap_or_else(|| Value::num(x % y)),
            Op::Eq | Op::NotEq | Op::And | Op::Or => Value::Null,
        };
        match result {
            Value::Float(x) if !x.is_finite() => Err(self.problem(
                span,
                "Operation failed",
                "The result is not a finite number.",
            )),
            Value::Int(n) if n.unsigned_abs() > 1 << 120 => {
                Err(self.problem(span, "Operation failed", "The result is too large."))
            }
            other => Ok(other),
        }
    }

    fn boolean(&self, value: &Value, expr: &Expression) -> Result<bool, Box<super::Diagnostic>> {
        value.to_bool().ok_or_else(|| {
            let detail = "Unsuitable value for operand: bool required.";
            self.problem(expr.span(), "Invalid operand", detail)
        })
    }

    fn number(&self, value: &Value, expr: &Expression) -> Evaluated {
        value.to_number().ok_or_else(|| {
            let detail = "Unsuitable value for operand: a number is required.";
            self.problem(expr.span(), "Invalid operand", detail)
        })
    }
}

/// Integer arithmetic if both operands are integers; `None` otherwise or on overflow, and then
/// floats are used.
fn checked_int_op(left: &Value, right: &Value, f: fn(i128, i128) -> Option<i128>) -> Option<Value> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => f(*a, *b).map(Value::Int),
        _ => None,
    }
}
