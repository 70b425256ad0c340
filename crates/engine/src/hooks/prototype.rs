//! Prototypes of kernel functions as text, without argument names, qualifiers and `struct`:
//! `int(mnt_idmap*, inode*, dentry*, umode_t)`.

use libbpf_rs::btf::types::{Func, FuncProto};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, ReferencesType as _, TypeId};

/// Any type, in a pattern.
const ANY: &str = "_";

/// The prototype of a function.
pub(crate) fn of(btf: &Btf<'_>, function: Func<'_>) -> Option<String> {
    let proto: FuncProto<'_> = function.referenced_type().try_into().ok()?;
    let parameters: Vec<String> = proto
        .iter()
        .map(|parameter| type_name(btf, parameter.ty))
        .collect();
    let result = type_name(btf, proto.referenced_type().type_id());
    Some(format!("{result}({})", parameters.join(", ")))
}

/// Whether a prototype has the types of a pattern, in which `_` is any type.
pub(crate) fn matches(prototype: &str, pattern: &str) -> bool {
    let (Some(found), Some(wanted)) = (types(prototype), types(pattern)) else {
        return false;
    };
    let mut pairs = found.iter().zip(&wanted);
    found.len() == wanted.len() && pairs.all(|(found, wanted)| *wanted == ANY || found == wanted)
}

/// The result and the arguments.
fn types(prototype: &str) -> Option<Vec<&str>> {
    let (result, arguments) = prototype.strip_suffix(')')?.split_once('(')?;
    let arguments = arguments.split(", ").filter(|word| !word.is_empty());
    Some([result].into_iter().chain(arguments).collect())
}

/// Name of a type; each pointer adds a `*`.
fn type_name(btf: &Btf<'_>, id: TypeId) -> String {
    let mut found: Option<BtfType<'_>> = btf.type_by_id(id);
    let mut pointers = String::new();
    while let Some(current) = found {
        match current.kind() {
            BtfKind::Ptr => pointers.push('*'),
            BtfKind::Const | BtfKind::Volatile | BtfKind::Restrict | BtfKind::TypeTag => {}
            BtfKind::FuncProto => return format!("function{pointers}"),
            _ => {
                let name = current.name().unwrap_or_default();
                return format!("{}{pointers}", name.to_string_lossy());
            }
        }
        found = current.next_type();
    }
    format!("void{pointers}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_types() {
        let found = "int(mnt_idmap*, inode*, dentry*, umode_t)";
        for pattern in [found, "int(_, inode*, dentry*, _)", "_(_, _, _, _)"] {
            assert!(matches(found, pattern), "{pattern}");
        }
        for pattern in [
            "int(_, inode*, dentry*)",
            "int(_, inode*, dentry*, _, _)",
            "dentry*(_, inode*, dentry*, _)",
            "int(_, dentry*, inode*, _)",
            "int",
        ] {
            assert!(!matches(found, pattern), "{pattern}");
        }
        assert!(matches("int()", "_()"));
    }
}
