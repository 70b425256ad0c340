//! Addresses of the kernel's variables and functions that programs read, from `/proc/kallsyms`: proc(5).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::OnceLock;

/// The symbols, in the order of [`fill`].
const NAMES: [&str; 11] = [
    "rename_lock",
    "mount_lock",
    "tk_core",
    "timekeeper_data",
    "init_task",
    "init_nsproxy",
    "apparmor_blob_sizes",
    "preempt_dynamic_mode",
    "__SCT__cond_resched",
    "__cond_resched",
    "return_to_handler",
];

/// Addresses by the place of the name in [`NAMES`]. 0 where the kernel has no such symbol, has several, or does not show
/// addresses to this process.
pub(crate) type Addresses = [u64; NAMES.len()];

/// Reads the addresses of kernel symbols for all programs that are loaded later. A process that drops `CAP_SYSLOG`, without
/// which the file has zeros, calls it before.
pub fn read_kernel_symbols() {
    addresses();
}

/// The addresses, which are the same as long as the machine runs. The file is read once.
pub(crate) fn addresses() -> &'static Addresses {
    static READ: OnceLock<Addresses> = OnceLock::new();
    READ.get_or_init(|| {
        File::open("/proc/kallsyms")
            .and_then(|file| find(BufReader::new(file)))
            .unwrap_or_default()
    })
}

/// Fills the `struct kernel_symbols` of a skeleton (`bpf/lib/kernel_symbols.bpf.h`) with [`Addresses`].
macro_rules! fill {
    ($symbols:expr, $addresses:expr) => {{
        let symbols = &mut $symbols;
        [
            symbols.rename_lock,
            symbols.mount_lock,
            symbols.tk_core,
            symbols.timekeeper_data,
            symbols.init_task,
            symbols.init_nsproxy,
            symbols.apparmor_blob_sizes,
            symbols.preempt_dynamic_mode,
            symbols.cond_resched_jump,
            symbols.cond_resched,
            symbols.return_to_handler,
        ] = *$addresses;
    }};
}
pub(crate) use fill;

/// Finds the symbols of the kernel itself, which come before those of its modules. With link-time optimisation Clang
/// appends `.llvm.` and a hash to names of static variables.
fn find(mut symbols: impl BufRead) -> io::Result<Addresses> {
    let mut found = [None; NAMES.len()];
    let mut line = Vec::new();
    loop {
        line.clear();
        if symbols.read_until(b'\n', &mut line)? == 0 || line.contains(&b'\t') {
            break;
        }
        let Some((address, name)) = parse(&line) else {
            continue;
        };
        if let Some(found) = NAMES
            .iter()
            .position(|known| *known == name)
            .and_then(|at| found.get_mut(at))
        {
            *found = Some(found.map_or(address, |_another| 0));
        }
    }
    Ok(found.map(Option::unwrap_or_default))
}

/// Address and name in a line `ADDRESS TYPE NAME`.
fn parse(line: &[u8]) -> Option<(u64, &str)> {
    let mut words = str::from_utf8(line.trim_ascii_end()).ok()?.split(' ');
    let address = words.next()?;
    let name = words.nth(1)?;
    let name = name.split_once(".llvm.").map_or(name, |(name, _hash)| name);
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&'static str, u64)> {
        let addresses = find(text.as_bytes()).unwrap();
        let all = NAMES.into_iter().zip(addresses);
        all.filter(|(_, address)| *address != 0).collect()
    }

    #[test]
    fn members_have_the_addresses_of_their_names() {
        let mut symbols = crate::skeleton::types::kernel_symbols::default();
        let addresses = std::array::from_fn(|at| at as u64);
        fill!(symbols, &addresses);
        let of = |name: &str| NAMES.iter().position(|it| *it == name).unwrap() as u64;
        assert_eq!(symbols.rename_lock, of("rename_lock"));
        assert_eq!(symbols.mount_lock, of("mount_lock"));
        assert_eq!(symbols.tk_core, of("tk_core"));
        assert_eq!(symbols.timekeeper_data, of("timekeeper_data"));
        assert_eq!(symbols.init_task, of("init_task"));
        assert_eq!(symbols.init_nsproxy, of("init_nsproxy"));
        assert_eq!(symbols.apparmor_blob_sizes, of("apparmor_blob_sizes"));
        assert_eq!(symbols.preempt_dynamic_mode, of("preempt_dynamic_mode"));
        assert_eq!(symbols.cond_resched_jump, of("__SCT__cond_resched"));
        assert_eq!(symbols.cond_resched, of("__cond_resched"));
    }

    #[test]
    fn symbols_of_the_kernel_are_found() {
        let text = "\
ffffffff81000000 T _stext
ffffffff81111111 T __cond_resched
ffffffff82222222 d mount_lock.llvm.8123456789
ffffffff83333333 D init_task
not a symbol
ffffffff84444444 D init_task_group
";
        assert_eq!(
            found(text),
            [
                ("mount_lock", 0xffff_ffff_8222_2222),
                ("init_task", 0xffff_ffff_8333_3333),
                ("__cond_resched", 0xffff_ffff_8111_1111)
            ]
        );
    }

    #[test]
    fn ambiguous_hidden_and_module_symbols_are_not_known() {
        let text = "\
ffffffff81111111 d rename_lock
ffffffff82222222 d rename_lock
0000000000000000 d mount_lock
ffffffffc0000000 d init_nsproxy\t[module]
";
        assert_eq!(found(text), []);
    }
}
