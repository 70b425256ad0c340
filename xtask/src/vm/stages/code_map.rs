//! Which code of the kernel an address belongs to, as the session `stages` tells it.

use std::collections::BTreeMap;

/// The lowest address of BPF programs and of the code that calls them: `MODULES_VADDR` in
/// `arch/x86/include/asm/pgtable_64_types.h`.
const GENERATED_CODE: u64 = 0xffff_ffff_c000_0000;

/// What the code at an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code<'a> {
    /// A BPF program: the file and line that the instruction is from.
    Program {
        file: &'a str,
        line: &'a str,
    },
    /// Code that the kernel has generated to call programs.
    Trampoline,
    /// A function of the kernel.
    Kernel(&'a str),
    User,
}

/// Where functions of the kernel, programs and their lines are.
#[derive(Debug, Default)]
pub(super) struct CodeMap {
    functions: BTreeMap<u64, String>,
    /// Ends of programs by their starts.
    programs: BTreeMap<u64, u64>,
    /// Files and lines by the address of the first instruction.
    lines: BTreeMap<u64, (String, String)>,
}

impl CodeMap {
    /// Takes a line of the session: `function ADDRESS NAME`, `program ADDRESS BYTES NAME`, `line ADDRESS FILE NUMBER`.
    /// Returns false if it has another form.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let address = |text| u64::from_str_radix(text, 16).ok();
        match *words.as_slice() {
            ["function", at, name] => {
                let at = address(at);
                at.map(|at| self.functions.insert(at, name.to_owned()))
                    .is_some()
            }
            ["program", at, bytes, _] => {
                let place = address(at).zip(bytes.parse::<u64>().ok());
                place
                    .map(|(at, bytes)| self.programs.insert(at, at + bytes))
                    .is_some()
            }
            ["line", at, file, line] => {
                let file = file.rsplit('/').next().unwrap_or(file);
                let place = (file.to_owned(), line.to_owned());
                let at = address(at);
                at.map(|at| self.lines.insert(at, place)).is_some()
            }
            _ => false,
        }
    }

    /// Address of a function of the kernel.
    pub(super) fn address(&self, function: &str) -> Option<u64> {
        let mut functions = self.functions.iter();
        functions.find_map(|(&at, name)| (name == function).then_some(at))
    }

    /// The code at an address.
    pub(super) fn code(&self, address: u64) -> Code<'_> {
        if address >> 63 == 0 {
            return Code::User;
        }
        let program = self.programs.range(..=address).next_back();
        if let Some((&start, _)) = program.filter(|&(_, &end)| address < end) {
            let line = self.lines.range(start..=address).next_back();
            let (file, line) = line.map_or(("", ""), |(_, (file, line))| (file, line));
            return Code::Program { file, line };
        }
        if address >= GENERATED_CODE {
            return Code::Trampoline;
        }
        let function = self.functions.range(..=address).next_back();
        Code::Kernel(function.map_or("", |(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_programs_and_functions() {
        let mut map = CodeMap::default();
        for line in [
            "function ffffffff81000000 do_filp_open",
            "function ffffffff81000100 __x64_sys_getppid",
            "program ffffffffc0001000 64 open_filp",
            "line ffffffffc0001000 ./bpf/hooks/open.bpf.h 230",
            "line ffffffffc0001020 ./bpf/lib/plan.bpf.h 48",
        ] {
            assert!(map.take(line), "{line}");
        }
        for line in ["function x y", "line ffffffffc0001020", "program 1 x y", ""] {
            assert!(!map.take(line), "{line}");
        }
        assert_eq!(map.address("do_filp_open"), Some(0xffff_ffff_8100_0000));
        assert_eq!(map.address("missing"), None);
        let program = |file, line| Code::Program { file, line };
        for (address, code) in [
            (0x40_1000, Code::User),
            (0xffff_ffff_8100_00ff, Code::Kernel("do_filp_open")),
            (0xffff_ffff_c000_1004, program("open.bpf.h", "230")),
            (0xffff_ffff_c000_103f, program("plan.bpf.h", "48")),
            (0xffff_ffff_c000_1040, Code::Trampoline),
        ] {
            assert_eq!(map.code(address), code, "{address:x}");
        }
    }
}
