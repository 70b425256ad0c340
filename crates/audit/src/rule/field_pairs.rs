//! Pairs of fields that `-C` compares with each other.

use super::Field;

/// Pairs that `-C` compares; the index plus one is the pair's number in the kernel ABI.
///
/// # Source
/// `AUDIT_COMPARE_*` in `include/uapi/linux/audit.h`, Linux 6.12.
pub(super) const ALL: [(Field, Field); 25] = [
    (Field::Uid, Field::ObjUid),
    (Field::Gid, Field::ObjGid),
    (Field::Euid, Field::ObjUid),
    (Field::Egid, Field::ObjGid),
    (Field::Auid, Field::ObjUid),
    (Field::Suid, Field::ObjUid),
    (Field::Sgid, Field::ObjGid),
    (Field::Fsuid, Field::ObjUid),
    (Field::Fsgid, Field::ObjGid),
    (Field::Uid, Field::Auid),
    (Field::Uid, Field::Euid),
    (Field::Uid, Field::Fsuid),
    (Field::Uid, Field::Suid),
    (Field::Auid, Field::Fsuid),
    (Field::Auid, Field::Suid),
    (Field::Auid, Field::Euid),
    (Field::Euid, Field::Suid),
    (Field::Euid, Field::Fsuid),
    (Field::Suid, Field::Fsuid),
    (Field::Gid, Field::Egid),
    (Field::Gid, Field::Fsgid),
    (Field::Gid, Field::Sgid),
    (Field::Egid, Field::Fsgid),
    (Field::Egid, Field::Sgid),
    (Field::Sgid, Field::Fsgid),
];

/// Returns the pair of two fields in the kernel's order; `None` if the kernel cannot compare them.
pub(super) fn find(one: Field, other: Field) -> Option<(Field, Field)> {
    ALL.into_iter()
        .find(|&pair| pair == (one, other) || pair == (other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_in_either_order() {
        assert_eq!(
            find(Field::Euid, Field::Uid),
            Some((Field::Uid, Field::Euid))
        );
        assert_eq!(
            find(Field::ObjGid, Field::Fsgid),
            Some((Field::Fsgid, Field::ObjGid))
        );
        assert_eq!(find(Field::Uid, Field::Gid), None);
        assert_eq!(find(Field::Uid, Field::Uid), None);
    }
}
