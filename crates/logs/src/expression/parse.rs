//! Parses expressions.
//!
//! ```text
//! expression: conjunction { ("or" | "||") conjunction }
//! conjunction: negation { ("and" | "&&") negation }
//! negation: ("not" | "!") negation | "(" expression ")" | test
//! test: FIELD OPERATOR VALUE
//! ```
//!
//! A value ends at a blank, at `&&` or `||`, or at a parenthesis that it did not open; quotes enclose any text.

use std::net::IpAddr;
use std::ops::Range;

use audit::table;

use super::field::{self, Field, Kind};
use super::{Expression, Operator, Test, Value};
use crate::accounts::Accounts;
use crate::event_values;

/// Deepest nesting.
const MAX_DEPTH: usize = 64;
/// Longest expression in bytes.
const MAX_LENGTH: usize = 64 << 10;

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What is wrong.
    pub message: String,
    /// Where, in bytes of the expression.
    pub span: Range<usize>,
    /// What to write instead.
    pub advice: String,
}

/// Parses an expression. An empty one is every event.
///
/// # Errors
/// The first mistake.
pub fn parse(text: &str, accounts: &Accounts) -> Result<Expression, Mistake> {
    let mut parser = Parser {
        text,
        at: 0,
        accounts,
    };
    if text.len() > MAX_LENGTH {
        return Err(parser.mistake(0..0, "the expression is too long", "split it"));
    }
    parser.skip_blanks();
    if parser.rest().is_empty() {
        return Ok(Expression::Everything);
    }
    let expression = parser.disjunction(0)?;
    match parser.rest() {
        "" => Ok(expression),
        rest => {
            let end = parser.at + rest.find(' ').unwrap_or(rest.len());
            let message = match rest.starts_with(')') {
                true => "no parenthesis is open here",
                false => "expected `and` or `or` between two tests",
            };
            Err(parser.mistake(
                parser.at..end,
                message,
                "for example `key=exec and uid=root`",
            ))
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    accounts: &'a Accounts,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps")]
    fn mistake(&self, span: Range<usize>, message: &str, advice: &str) -> Mistake {
        Mistake {
            message: message.to_owned(),
            span,
            advice: advice.to_owned(),
        }
    }

    /// Takes a word operator, which ends at a blank or parenthesis, or a symbol.
    fn take(&mut self, word: &str, symbol: &str) -> bool {
        self.skip_blanks();
        let rest = self.rest();
        if !symbol.is_empty() && rest.starts_with(symbol) {
            self.at += symbol.len();
            return true;
        }
        let is_word = rest
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
            && rest
                .get(word.len()..)
                .is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '(']));
        if is_word {
            self.at += word.len();
        }
        is_word
    }

    fn disjunction(&mut self, depth: usize) -> Result<Expression, Mistake> {
        let mut parts = vec![self.conjunction(depth)?];
        while self.take("or", "||") {
            parts.push(self.conjunction(depth)?);
        }
        self.skip_blanks();
        Ok(joined(parts, Expression::Or))
    }

    fn conjunction(&mut self, depth: usize) -> Result<Expression, Mistake> {
        let mut parts = vec![self.negation(depth)?];
        while self.take("and", "&&") {
            parts.push(self.negation(depth)?);
        }
        Ok(joined(parts, Expression::And))
    }

    fn negation(&mut self, depth: usize) -> Result<Expression, Mistake> {
        self.skip_blanks();
        let start = self.at;
        if depth > MAX_DEPTH {
            return Err(self.mistake(
                start..start,
                "too many parentheses",
                "use at most 64 levels",
            ));
        }
        if self.take("not", "!") {
            return Ok(Expression::Not(Box::new(self.negation(depth + 1)?)));
        }
        if !self.rest().starts_with('(') {
            return self.test().map(Expression::Test);
        }
        self.at += 1;
        let inner = self.disjunction(depth + 1)?;
        if !self.rest().starts_with(')') {
            let message = "this parenthesis is not closed";
            return Err(self.mistake(start..start + 1, message, "add `)`"));
        }
        self.at += 1;
        Ok(inner)
    }

    fn test(&mut self) -> Result<Test, Mistake> {
        let start = self.at;
        let rest = self.rest();
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let len = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let name = rest.get(..len).unwrap_or_default();
        let span = start..start + len;
        if name.is_empty() {
            let end = start + rest.chars().next().map_or(0, char::len_utf8);
            return Err(self.mistake(
                start..end,
                "expected a test",
                "a test is FIELD, an operator and a value: `uid=root`",
            ));
        }
        let field = field::find(name).ok_or_else(|| {
            let advice = match field::similar(name) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => "`--fields` lists the fields; `text~WORD` searches all text".to_owned(),
            };
            self.mistake(span.clone(), &format!("unknown field `{name}`"), &advice)
        })?;
        self.at += len;
        self.skip_blanks();
        let operator = self.operator(&field, &span)?;
        self.skip_blanks();
        let (text, span) = self.word()?;
        if let Some(test) =
            word_size(&field, operator, &text).or_else(|| root(&field, operator, &text))
        {
            return Ok(test);
        }
        let value = self.value(&field, operator, &text, span)?;
        Ok(Test {
            field,
            operator,
            value,
        })
    }

    fn operator(&mut self, field: &Field, name: &Range<usize>) -> Result<Operator, Mistake> {
        const OPERATORS: [(&str, Operator); 9] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("!~", Operator::ContainsNot),
            ("<=", Operator::AtMost),
            (">=", Operator::AtLeast),
            ("=", Operator::Equal),
            ("~", Operator::Contains),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let start = self.at;
        let found = OPERATORS
            .iter()
            .find(|(text, _)| self.rest().starts_with(text));
        let Some(&(text, operator)) = found else {
            let message = format!("expected an operator after `{}`", field.name);
            return Err(self.mistake(name.clone(), &message, "use =, !=, ~, !~, <, <=, > or >="));
        };
        self.at += text.len();
        let span = start..self.at;
        match operator {
            Operator::Equal | Operator::NotEqual => {}
            Operator::Contains | Operator::ContainsNot => {
                if !matches!(field.kind, Kind::Text | Kind::Path | Kind::Type) {
                    let message = format!("`{}` is not text", field.name);
                    return Err(self.mistake(span, &message, "compare with `=`"));
                }
            }
            _ => {
                if !matches!(
                    field.kind,
                    Kind::Number | Kind::Hex | Kind::Exit | Kind::User
                ) {
                    let message = format!("`{}` is not a number", field.name);
                    return Err(self.mistake(span, &message, "compare with `=` or `~`"));
                }
            }
        }
        Ok(operator)
    }

    /// The value: a word, or text in quotes.
    fn word(&mut self) -> Result<(String, Range<usize>), Mistake> {
        let start = self.at;
        let rest = self.rest();
        if let Some(quote) = rest.chars().next().filter(|first| "'\"".contains(*first)) {
            let inner = rest.get(1..).unwrap_or_default();
            let Some(len) = inner.find(quote) else {
                return Err(self.mistake(start..start + 1, "this quote is not closed", "close it"));
            };
            self.at += len + 2;
            let text = inner.get(..len).unwrap_or_default();
            return Ok((text.to_owned(), start..self.at));
        }
        let mut open = 0_usize;
        let ends = |letter: char| {
            match letter {
                '(' => open += 1,
                ')' if open == 0 => return true,
                ')' => open -= 1,
                _ => {}
            }
            letter.is_whitespace()
        };
        let len = rest.find(ends).unwrap_or(rest.len());
        let word = rest.get(..len).unwrap_or_default();
        let joins = ["&&", "||"].into_iter().filter_map(|join| word.find(join));
        let len = joins.min().unwrap_or(len);
        if len == 0 {
            let advice = "write a value, or `\"\"` for an empty one";
            return Err(self.mistake(start..start, "expected a value", advice));
        }
        self.at += len;
        let text = rest.get(..len).unwrap_or_default();
        Ok((text.to_owned(), start..self.at))
    }

    fn value(
        &self,
        field: &Field,
        operator: Operator,
        text: &str,
        span: Range<usize>,
    ) -> Result<Value, Mistake> {
        if matches!(operator, Operator::Contains | Operator::ContainsNot) {
            return Ok(Value::Text(text.into()));
        }
        let name = field.name;
        let fail =
            |message: String, advice: &str| Err(self.mistake(span.clone(), &message, advice));
        let number = text.parse::<i64>().ok();
        Ok(match field.kind {
            Kind::Text => match text.parse() {
                Ok(address) if name == "addr" => Value::Text(IpAddr::to_string(&address).into()),
                _ => Value::Text(text.into()),
            },
            Kind::Path if text.starts_with('/') => {
                Value::Text(event_values::resolved(text.as_bytes(), None).into())
            }
            Kind::Path => Value::Text(text.trim_end_matches('/').into()),
            Kind::Number => match number {
                // Some records write the unset session as -1.
                Some(-1) if name == "ses" => Value::Number(i64::from(u32::MAX)),
                Some(number) => Value::Number(number),
                None if text == "unset" => Value::Number(i64::from(u32::MAX)),
                None => {
                    return fail(
                        format!("`{name}` is a number, not `{text}`"),
                        "write digits",
                    );
                }
            },
            Kind::Hex => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let machine = table::arch_by_name(text.as_bytes()).filter(|_| name == "arch");
                match (machine, u64::from_str_radix(digits, 16)) {
                    (Some(arch), _) => Value::Number(arch.0.into()),
                    (None, Ok(number)) => Value::Number(number.cast_signed()),
                    (None, Err(_)) if name == "arch" => {
                        let message = format!("no arch is called `{text}`");
                        return fail(
                            message,
                            "write b64, b32, a machine such as x86_64, or the number of the record",
                        );
                    }
                    (None, Err(_)) => {
                        let message = format!("`{name}` is hexadecimal, not `{text}`");
                        return fail(message, "write it as the record does, such as `a1=241`");
                    }
                }
            }
            Kind::User | Kind::Group => return self.account(field, text, span),
            Kind::Exit => match (
                number,
                table::errno_number(text.trim_start_matches('-').as_bytes()),
            ) {
                (Some(number), _) => Value::Number(number),
                (None, Some(errno)) => Value::Number(-i64::from(errno)),
                (None, None) => {
                    let message = format!("`{text}` is neither a number nor an error");
                    return fail(message, "for example `exit=EACCES` or `exit=-13`");
                }
            },
            Kind::Syscall => match number {
                Some(number) => Value::Number(number),
                None if super::plan::syscall_numbers(text).next().is_some() => {
                    Value::Syscall(text.to_owned())
                }
                None => {
                    let message = format!("no syscall is called `{text}`");
                    return fail(message, "`ausyscall --dump` lists the names");
                }
            },
            Kind::Success => match text {
                "yes" | "success" | "1" => Value::Text("yes".into()),
                "no" | "failed" | "0" => Value::Text("no".into()),
                _ => {
                    return fail(
                        format!("`success` is yes or no, not `{text}`"),
                        "write yes or no",
                    );
                }
            },
            Kind::Type => {
                let name = text.to_ascii_uppercase();
                let number = text.parse().ok().map(audit::ids::MsgType);
                match number.map(table::msg_type_name) {
                    Some(Some(name)) => Value::Text(name.into()),
                    Some(None) => Value::Text(format!("UNKNOWN[{text}]").into()),
                    None if table::msg_type_number(name.as_bytes()).is_some() => {
                        Value::Text(name.into())
                    }
                    None => {
                        let message = format!("no record type is called `{text}`");
                        return fail(message, "`ausearch -m` lists the types");
                    }
                }
            }
        })
    }

    fn account(&self, field: &Field, text: &str, span: Range<usize>) -> Result<Value, Mistake> {
        if text == "unset" || text == "-1" {
            return Ok(Value::Account {
                name: None,
                ids: vec![u32::MAX],
            });
        }
        if let Ok(id) = text.parse() {
            return Ok(Value::Account {
                name: None,
                ids: vec![id],
            });
        }
        let is_name = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'=');
        if !is_name {
            let message = format!("`{text}` is neither a number nor a name");
            return Err(self.mistake(span, &message, "for example `uid=root` or `uid=0`"));
        }
        // Another host may have written the log: a name that is unknown here may be in enriched records.
        let ids = match field.kind {
            Kind::Group => self.accounts.gids(text).collect(),
            _ => self.accounts.uids(text).collect(),
        };
        Ok(Value::Account {
            name: Some(text.to_owned()),
            ids,
        })
    }
}

/// `arch=b64` and `arch=b32`, as rules name them: a bit of the number tells.
///
/// # Source
/// `__AUDIT_ARCH_64BIT` in `include/uapi/linux/audit.h`, Linux 6.12.
fn word_size(field: &Field, operator: Operator, text: &str) -> Option<Test> {
    const IS_64_BIT: i64 = 0x8000_0000;
    if field.name != "arch" {
        return None;
    }
    let operator = match (text, operator) {
        ("b64", Operator::Equal) | ("b32", Operator::NotEqual) => Operator::AtLeast,
        ("b32", Operator::Equal) | ("b64", Operator::NotEqual) => Operator::Less,
        _ => return None,
    };
    Some(Test {
        field: *field,
        operator,
        value: Value::Number(IS_64_BIT),
    })
}

/// `dir=/`: every path is below it.
fn root(field: &Field, operator: Operator, text: &str) -> Option<Test> {
    let is_root = text.starts_with('/') && *event_values::resolved(text.as_bytes(), None) == *b"/";
    let operator = match operator {
        Operator::Equal => Operator::Contains,
        Operator::NotEqual => Operator::ContainsNot,
        _ => return None,
    };
    (field.name == "dir" && is_root).then(|| Test {
        field: field::PATH,
        operator,
        value: Value::Text(Vec::new()),
    })
}

fn joined(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}
