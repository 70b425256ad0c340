//! Messages of libbpf while it loads an object, kept for the error.

use std::sync::Mutex;

use libbpf_rs::{PrintLevel, set_print};

/// Runs `load` and returns its result and the important messages that libbpf printed meanwhile.
pub(crate) fn capture<T>(load: impl FnOnce() -> T) -> (T, String) {
    if let Ok(mut captured) = CAPTURED.lock() {
        captured.clear();
    }
    let before = set_print(Some((PrintLevel::Warn, store)));
    let loaded = load();
    set_print(before);
    let captured = CAPTURED
        .lock()
        .map(|captured| captured.clone())
        .unwrap_or_default();
    (loaded, captured)
}

/// The captured messages. Global, because libbpf has one print callback per process.
static CAPTURED: Mutex<String> = Mutex::new(String::new());

#[expect(
    clippy::needless_pass_by_value,
    reason = "libbpf-rs fixes the signature"
)]
fn store(_level: PrintLevel, text: String) {
    if let Ok(mut captured) = CAPTURED.lock() {
        append(&mut captured, &text);
    }
}

/// Appends the important parts of a message: the first line that reports a failure, and the end of the
/// verifier log, which has the reason.
fn append(captured: &mut String, text: &str) {
    const LOG: &str = "BEGIN PROG LOAD LOG";
    const MAX_BYTES: usize = 600;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if text.contains(LOG) {
        let log: Vec<&str> = lines.filter(|line| !line.starts_with("--")).collect();
        let end = log.get(log.len().saturating_sub(4)..).unwrap_or_default();
        captured.push_str("; verifier: ");
        captured.extend(end.join(" | ").chars().take(MAX_BYTES));
    } else if captured.is_empty()
        && text.contains("failed")
        && let Some(first) = lines.next()
    {
        captured.extend(first.trim_start_matches("libbpf: ").chars().take(MAX_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_and_end_of_verifier_log_are_kept() {
        let mut captured = String::new();
        for text in [
            "libbpf: prog 'heartbeat': BPF program load failed: -EACCES\n",
            "libbpf: prog 'heartbeat': -- BEGIN PROG LOAD LOG --\n0: r1\n1: r2\n2: r3\ninvalid access\nprocessed 3 insns\n-- END PROG LOAD LOG --\n",
            "libbpf: failed to load object 'syscall_bpf'\n",
        ] {
            append(&mut captured, text);
        }
        assert_eq!(
            captured,
            "prog 'heartbeat': BPF program load failed: -EACCES; \
             verifier: 1: r2 | 2: r3 | invalid access | processed 3 insns"
        );
    }
}
