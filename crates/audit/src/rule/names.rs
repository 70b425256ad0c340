//! Names of what rules are made of, there and back.

use super::{Field, List, Op, field};

impl Field {
    /// Name under which it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        field::name(self)
    }

    /// The field of this name, which may be one that is only read.
    #[must_use]
    pub fn called(name: &str) -> Option<Self> {
        field::by_name(name.as_bytes()).map(|spec| spec.field)
    }
}

impl Op {
    /// How it is written.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        field::operator(self)
    }

    /// The operator that is written so.
    #[must_use]
    pub fn written(symbol: &str) -> Option<Self> {
        field::OPERATORS
            .iter()
            .find(|&&(text, _)| text == symbol)
            .map(|&(_, op)| op)
    }
}

impl List {
    /// All of them, by number.
    pub const ALL: [Self; 6] = [
        Self::User,
        Self::Task,
        Self::Exit,
        Self::Exclude,
        Self::Filesystem,
        Self::IoUring,
    ];

    /// How it is written.
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

    /// Its number in the kernel ABI.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The list of this name.
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
