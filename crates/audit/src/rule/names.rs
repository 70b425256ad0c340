//! Converts fields, operators and lists to and from their names.

use super::{Field, List, Op, field};

impl Field {
    /// Printed name.
    #[must_use]
    pub fn name(self) -> &'static str {
        field::name(self)
    }

    /// Returns the field with this name. Some fields have a second name that is never printed.
    #[must_use]
    pub fn called(name: &str) -> Option<Self> {
        field::by_name(name.as_bytes()).map(|spec| spec.field)
    }
}

impl Op {
    /// Spelling of the operator.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        field::operator(self)
    }

    /// Returns the operator with this spelling.
    #[must_use]
    pub fn written(symbol: &str) -> Option<Self> {
        field::OPERATORS
            .iter()
            .find(|&&(text, _)| text == symbol)
            .map(|&(_, op)| op)
    }
}

impl List {
    /// All lists, by number.
    pub const ALL: [Self; 6] = [
        Self::User,
        Self::Task,
        Self::Exit,
        Self::Exclude,
        Self::Filesystem,
        Self::IoUring,
    ];

    /// Name in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Task => "task",
            Self::Exit => "exit",
            Self::Exclude => "exclude",
            Self::Filesystem => "filesystem",
            Self::IoUring => "io_uring",
        }
    }

    /// Number in the kernel ABI.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the list with this name.
    #[must_use]
    pub fn called(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|&list| list.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(Field::called("loginuid"), Some(Field::Auid));
        assert_eq!(
            Field::called(Field::ObjLevLow.name()),
            Some(Field::ObjLevLow)
        );
        assert_eq!(Field::called("key"), None);
        for list in List::ALL {
            assert_eq!(List::called(list.name()), Some(list));
        }
        for (text, op) in field::OPERATORS {
            assert_eq!((op.symbol(), Op::written(text)), (text, Some(op)));
        }
    }
}
