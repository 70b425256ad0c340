//! `enum wire_form`: forms of kernel functions that programs must know.

pub(crate) const PARENT_BY_NAME: u32 = 1 << 0;
pub(crate) const CREATE_IN_PARENT: u32 = 1 << 1;
pub(crate) const MKDIR_DENTRY: u32 = 1 << 2;
pub(crate) const NTP_ADJTIMEX: u32 = 1 << 3;
pub(crate) const NAMES_IN_ORDER: u32 = 1 << 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_wire_h() {
        let header = include_str!("../../bpf/wire.h");
        for (name, bit) in [
            ("PARENT_BY_NAME", PARENT_BY_NAME),
            ("CREATE_IN_PARENT", CREATE_IN_PARENT),
            ("MKDIR_DENTRY", MKDIR_DENTRY),
            ("NTP_ADJTIMEX", NTP_ADJTIMEX),
            ("NAMES_IN_ORDER", NAMES_IN_ORDER),
        ] {
            let line = format!("WIRE_FORM_{name} = 1 << {},", bit.trailing_zeros());
            assert!(header.contains(&line), "{line}");
        }
        assert_eq!(header.matches("WIRE_FORM_").count(), 5);
    }
}
