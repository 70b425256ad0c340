//! The time to parse and plan rules does not grow with the square of their number.
//!
//! `cargo test --release -p audit --test many_rules -- --nocapture` prints the times: 1,000 rules took 28 ms
//! on 20 November 2026 on a server with 2 CPUs. The test compares two times of one run and has no limit in
//! seconds, which other load or a build without optimization would break.

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use audit::ids::Arch;
    use audit::plan::Plan;
    use audit::plan::rule_list::RuleList;
    use audit::rule::parse_file;
    use inputs::host::TestHost;

    /// Number of runs; the fastest counts.
    const RUNS: u32 = 5;
    /// Rules of the smaller list.
    const FEW: u32 = 1000;
    /// Size of the larger list, relative to the smaller one. Quadratic growth would take `FACTOR * FACTOR`
    /// times as long; the limit is `3 * FACTOR`, because other load may disturb one of the two times.
    const FACTOR: u32 = 4;

    /// Watches, path rules, and syscall rules of both ABIs, as in public rule sets.
    fn text(rules: u32) -> String {
        let mut text = String::new();
        for number in 0..rules / 4 {
            let uid = 1000 + number;
            write!(
                text,
                "-w /etc/service{number}/conf.d -p wa -k service{number}\n\
                 -a always,exit -F path=/usr/bin/tool{number} -F perm=x -F auid>=1000 -F auid!=unset -k tools\n\
                 -a always,exit -F arch=b64 -S open,openat,openat2,creat,truncate -F exit=-EACCES -F uid={uid} -k access\n\
                 -a always,exit -F arch=b32 -S unlink,unlinkat,rename,renameat,rmdir -F uid={uid} -k delete\n"
            )
            .unwrap();
        }
        text
    }

    /// The shortest time to parse and plan so many rules.
    fn time(rules: u32) -> Duration {
        let text = text(rules);
        let run = |_| {
            let started = Instant::now();
            let (lines, findings) = parse_file(text.as_bytes(), &TestHost);
            let mut list = RuleList::default();
            assert_eq!(list.load(0, lines), []);
            assert!(findings.iter().all(|finding| finding.code != "unsupported"));
            let plan = Plan::compile(list.into_rules(), &[Arch::X86_64, Arch::I386]);
            assert_eq!(plan.rules.len(), usize::try_from(rules).unwrap());
            started.elapsed()
        };
        (0..RUNS).map(run).min().unwrap()
    }

    #[test]
    fn planning_time_is_not_quadratic() {
        let (few, many) = (time(FEW), time(FEW * FACTOR));
        let growth = many.div_duration_f64(few);
        println!(
            "{FEW} rules: {few:?}, {FACTOR} times as many: {many:?}, {growth:.1} times as long"
        );
        assert!(
            growth < f64::from(3 * FACTOR),
            "{FACTOR} times the rules take {growth:.1} times as long"
        );
    }
}
