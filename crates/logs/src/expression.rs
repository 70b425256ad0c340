//! The language of `tollgate search` and of the filters of `tollgate ship`: tests of fields, joined by `and`, `or`, `not` and parentheses.
//!
//! ```text
//! key=passwd and exe~/tmp/ and not auid=unset
//! ```
//!
//! [`parse`] parses, [`field`] lists the fields with their types, [`evaluate`] compares an event, and [`plan`] tells
//! the index and the text filter what every matching event contains.

pub mod evaluate;
pub mod field;
pub mod parse;
pub mod plan;

use field::Field;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Every event.
    Everything,
    /// A test of a field.
    Test(Test),
    /// Not this.
    Not(Box<Self>),
    /// All of these.
    And(Vec<Self>),
    /// At least one of these.
    Or(Vec<Self>),
}

/// A test of a field: true if a value of the event passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// What is tested.
    pub field: Field,
    /// How it is compared.
    pub operator: Operator,
    /// What it is compared with.
    pub value: Value,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`: the event has the field, and no value is equal.
    NotEqual,
    /// `~`: a value contains the text.
    Contains,
    /// `!~`: the event has the field, and no value contains the text.
    ContainsNot,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text as written.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// A user or group: its name, if it was written, and the numbers that this host gives it.
    Account {
        /// The name that was written.
        name: Option<String>,
        /// The numbers; none if this host does not know the name.
        ids: Vec<u32>,
    },
    /// A syscall by its name.
    Syscall(String),
}

#[cfg(test)]
mod tests;
