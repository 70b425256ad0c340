//! The arguments of `cargo xtask vm`: which kernels are booted, in which machines, and which tests run there.

use std::error::Error;
use std::path::PathBuf;

use super::boot::{PARTS, Purpose};
use super::build::{Profile, build_with};
use super::kernel::Kernel;
use super::matrix;
use super::target::Target;
use crate::repository::Repository;

/// Machines with a special purpose, and the prefix of their tests' names. A filter for these tests must
/// start with the prefix.
const PREFIXES: [(&str, Purpose); 4] = [
    (COUNT, Purpose::Count),
    ("attack", Purpose::Race),
    ("avc", Purpose::Selinux),
    ("panic", Purpose::Panic),
];

/// The tests that count instructions.
pub(super) const COUNT: &str = "count_";

/// The test of `tollgate doctor`, in a machine of its own.
pub(super) const DOCTOR: &str = "doctor::";

/// The tests with random rule lists.
const LISTS: &str = "lists::";

/// The tests with random programs.
const HUNT: &str = "hunt::";

/// The kernel option of machines that leave out sessions which are the same on each kernel: `tests/vm/src/suite.rs`.
const ELSEWHERE: &str = "vm.elsewhere";

const USAGE: &str = "\
usage: vm [--kernel NAME,...|tested|all] [--filter NAME] [--lists SEED:FIRST:COUNT] [--hunt SEED:FIRST:COUNT] \
[--append KERNEL_OPTIONS] [--profile dev|release] [--tollgate FILE]";

/// Which sessions a kernel runs if no filter selects some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of `make test`.
    EachCommit,
    /// Those of the matrix.
    Matrix,
    /// All.
    Whole,
}

impl Scope {
    /// The scope of a value of `--kernel`.
    fn of(kernels: &str) -> Self {
        match kernels {
            "tested" => Self::EachCommit,
            "all" => Self::Matrix,
            _ => Self::Whole,
        }
    }

    /// The filter of a kernel's sessions, if the scope has the kernel.
    fn filter(self, kernel: &str) -> Option<&'static str> {
        let entry = matrix::find(kernel)?;
        match self {
            Self::EachCommit => entry.each_commit,
            Self::Matrix => Some(entry.filter),
            Self::Whole => None,
        }
    }
}

/// Parsed arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) kernels: Vec<Kernel>,
    pub(super) scope: Scope,
    pub(super) profile: Profile,
    /// A program in place of the daemon that is built, on `x86_64`.
    pub(super) tollgate: Option<PathBuf>,
    /// Runs only tests whose name contains this.
    pub(super) filter: String,
    /// More kernel options: `vm.lists=SEED:FIRST:COUNT` and `vm.hunt=SEED:FIRST:COUNT` select random rule lists or
    /// programs, `vm.allow_loss` starts daemons with `--allow-loss`.
    kernel_options: String,
}

impl Options {
    /// Parses arguments.
    ///
    /// # Errors
    /// With a message that names the first wrong one.
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            kernels: kernels("tested", Scope::EachCommit)?,
            scope: Scope::EachCommit,
            profile: Profile::Release,
            tollgate: None,
            filter: String::new(),
            kernel_options: String::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("`{word}` needs a value"))?;
            match word.as_str() {
                "--kernel" => {
                    options.scope = Scope::of(value);
                    options.kernels = kernels(value, options.scope)?;
                }
                "--filter" if value.contains(char::is_whitespace) => {
                    return Err("a filter is part of one test name and has no blanks".into());
                }
                "--filter" => options.filter.clone_from(value),
                "--lists" if !value.contains(char::is_whitespace) => {
                    options.filter = LISTS.to_owned();
                    options.kernel_options = format!("vm.lists={value}");
                }
                "--hunt" if !value.contains(char::is_whitespace) => {
                    options.filter = HUNT.to_owned();
                    options.kernel_options = format!("vm.hunt={value}");
                }
                "--profile" if value == "dev" => options.profile = Profile::Dev,
                "--profile" if value == "release" => options.profile = Profile::Release,
                "--tollgate" => options.tollgate = Some(PathBuf::from(value)),
                "--append" => options.kernel_options.clone_from(value),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }

    /// Builds the programs of all architectures.
    ///
    /// # Errors
    /// If a tool is missing, or cargo cannot be started.
    pub(super) fn build(&self, repository: &Repository) -> Result<bool, Box<dyn Error>> {
        let targets = self.targets();
        for target in &targets {
            if let Some(missing) = target.missing()? {
                return Err(format!("{missing} not found: run `sh scripts/setup.sh arm64`").into());
            }
        }
        for target in targets {
            if !build_with(repository, self.profile, target)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The architectures of the kernels.
    pub(super) fn targets(&self) -> Vec<Target> {
        let has = |target: &Target| self.kernels.iter().any(|kernel| kernel.target == *target);
        Target::ALL.into_iter().filter(has).collect()
    }

    /// The machines of a purpose that run the selected tests on a kernel: filter, and part.
    pub(super) fn selections(
        &self,
        purpose: Purpose,
        kernel: &Kernel,
    ) -> Vec<(&str, Option<usize>)> {
        let filter = match self.scope.filter(&kernel.line) {
            Some(filter) if self.filter.is_empty() => filter,
            _ => self.filter.as_str(),
        };
        let mut selections = Vec::new();
        if self.scope == Scope::Matrix && self.filter.is_empty() && purpose == Purpose::General {
            selections.push((DOCTOR, None));
        }
        if filter.is_empty() {
            match (kernel.target, purpose) {
                (Target::X86_64, Purpose::General) => {
                    selections.extend((1..=PARTS).map(|part| (filter, Some(part))));
                }
                (Target::X86_64, _) | (Target::Arm64, Purpose::General) => {
                    selections.push((filter, None));
                }
                (Target::Arm64, _) => {}
            }
            return selections;
        }
        let mut prefixes = PREFIXES.iter();
        let found = prefixes.find(|(prefix, _)| filter.starts_with(prefix));
        if purpose == found.map_or(Purpose::General, |(_, purpose)| *purpose) {
            selections.push((filter, None));
        }
        selections
    }

    /// The kernel options of a kernel's machines.
    pub(super) fn of_kernel(&self, kernel: &Kernel) -> String {
        let engines = matrix::options(&kernel.line);
        let elsewhere = match self.has_others(kernel) {
            true => ELSEWHERE,
            false => "",
        };
        format!(
            "{} {engines} {} {elsewhere}",
            kernel.options, self.kernel_options
        )
    }

    /// Whether all tests run, and another kernel than this one has the sessions that are the same on each.
    fn has_others(&self, kernel: &Kernel) -> bool {
        let is_all = self.filter.is_empty() && self.scope != Scope::Matrix;
        let first = self.kernels.first();
        is_all && first.is_some_and(|first| first.line != kernel.line)
    }
}

/// The kernels of a value of `--kernel`, which has this scope.
fn kernels(names: &str, scope: Scope) -> Result<Vec<Kernel>, Box<dyn Error>> {
    let parse = |name: &str| {
        Kernel::parse(name).ok_or_else(|| {
            format!(
                "unknown kernel `{name}`: a version or newest; then -rt, -voluntary, -full or -lazy, and -arm64"
            )
            .into()
        })
    };
    match scope {
        Scope::EachCommit => matrix::of_each_commit().map(parse).collect(),
        Scope::Matrix => matrix::MATRIX.iter().map(|it| parse(it.kernel)).collect(),
        Scope::Whole => names.split(',').map(parse).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Options::parse(&words).map_err(|error| error.to_string())
    }

    fn lines(options: &Options) -> Vec<&str> {
        options.kernels.iter().map(|it| it.line.as_str()).collect()
    }

    /// Purpose and selection of each machine of the first kernel.
    fn machines(words: &[&str]) -> Vec<(Purpose, String, Option<usize>)> {
        let options = options(words).unwrap();
        let kernel = &options.kernels[0];
        let of = |purpose| {
            let selections = options.selections(purpose, kernel).into_iter();
            selections.map(move |(filter, part)| (purpose, filter.to_owned(), part))
        };
        Purpose::ALL.into_iter().flat_map(of).collect()
    }

    #[test]
    fn kernels_of_each_commit_and_all_tests_are_the_default() {
        let default = options(&[]).unwrap();
        assert_eq!(lines(&default), ["6.1", "6.12", "newest"]);
        assert_eq!(default.filter, "");
        assert_eq!(options(&["--kernel", "tested"]), Ok(default));
    }

    #[test]
    fn sessions_that_are_the_same_on_each_kernel_run_on_the_first() {
        let left_out = |words: &[&str]| -> Vec<bool> {
            let options = options(words).unwrap();
            let of = |kernel| options.of_kernel(kernel).contains(ELSEWHERE);
            options.kernels.iter().map(of).collect()
        };
        assert_eq!(
            left_out(&["--kernel", "6.1,6.12,6.18"]),
            [false, true, true]
        );
        assert_eq!(left_out(&["--kernel", "6.12"]), [false]);
        let named = ["--kernel", "6.1,6.12", "--filter", "json::"];
        assert_eq!(left_out(&named), [false, false]);
        assert!(!left_out(&["--kernel", "all"]).contains(&true));
    }

    #[test]
    fn newest_kernel_runs_some_sessions_for_each_commit() {
        let general = |words: &[&str]| -> Vec<String> {
            let options = options(words).unwrap();
            let newest = Kernel::parse("newest").unwrap();
            let selected = options.selections(Purpose::General, &newest).into_iter();
            selected.map(|(filter, _)| filter.to_owned()).collect()
        };
        let [some] = general(&[]).try_into().unwrap();
        assert!(some.starts_with("^differential|"), "{some}");
        assert_eq!(general(&["--kernel", "newest"]), vec![""; PARTS]);
        assert_eq!(general(&["--filter", "raw::"]), ["raw::"]);
        let counted = options(&["--kernel", &matrix::counted()]).unwrap();
        assert_eq!(lines(&counted), ["6.1", "6.12"]);
    }

    #[test]
    fn one_kernel_and_some_tests_can_be_chosen() {
        let chosen = options(&["--kernel", "6.12", "--filter", "raw::"]).unwrap();
        assert_eq!(
            (lines(&chosen), chosen.filter.as_str()),
            (vec!["6.12"], "raw::")
        );
        let two = options(&["--kernel", "6.18,newest-rt"]).unwrap();
        assert_eq!(lines(&two), ["6.18", "newest-rt"]);
    }

    #[test]
    fn matrix_has_both_architectures_and_the_machine_of_doctor() {
        let all = options(&["--kernel", "all"]).unwrap();
        assert_eq!(lines(&all).len(), matrix::MATRIX.len());
        assert_eq!(all.targets(), Target::ALL);
        let first = machines(&["--kernel", "all"]);
        assert_eq!(first[0], (Purpose::General, DOCTOR.to_owned(), None));
        assert!(first[1].1.starts_with('^'), "{first:?}");
        let some = (Purpose::General, "raw::".to_owned(), None);
        assert_eq!(machines(&["--kernel", "all", "--filter", "raw::"]), [some]);
        let full = Kernel::parse("6.12-full").unwrap();
        assert_eq!(
            all.of_kernel(&full).trim(),
            "preempt=full vm.engines=tracepoint"
        );
    }

    #[test]
    fn arm64_has_one_machine() {
        let machine = (Purpose::General, String::new(), None);
        assert_eq!(machines(&["--kernel", "6.12-arm64"]), [machine]);
    }

    #[test]
    fn lists_are_selected_by_seed_and_number() {
        let some = options(&["--lists", "7:0:250"]).unwrap();
        assert_eq!(
            (some.filter.as_str(), some.kernel_options.as_str()),
            ("lists::", "vm.lists=7:0:250")
        );
    }

    #[test]
    fn filter_selects_the_machine() {
        for (filter, purpose) in [
            ("count_fentry::", Purpose::Count),
            ("fentry", Purpose::General),
            ("attack::names", Purpose::Race),
            ("avc::", Purpose::Selinux),
            ("panic::", Purpose::Panic),
        ] {
            assert_eq!(
                machines(&["--filter", filter]),
                [(purpose, filter.to_owned(), None)]
            );
        }
    }

    #[test]
    fn only_a_full_run_has_parts_and_all_purposes() {
        let found: Vec<_> = machines(&[])
            .into_iter()
            .map(|(purpose, _, part)| (purpose, part))
            .collect();
        assert_eq!(
            found,
            [
                (Purpose::General, Some(1)),
                (Purpose::General, Some(2)),
                (Purpose::General, Some(3)),
                (Purpose::General, Some(4)),
                (Purpose::Selinux, None),
                (Purpose::Race, None),
                (Purpose::Panic, None),
                (Purpose::Count, None),
            ]
        );
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (words, named) in [
            (&["--kernel", "two"][..], "`two`"),
            (&["--kernel"], "needs a value"),
            (&["--filter", "a b"], "no blanks"),
            (&["--what", "x"], "usage"),
            (&["--kernel", "6.12,vax"], "`vax`"),
        ] {
            let error = options(words).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
