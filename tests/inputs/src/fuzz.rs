//! Mutations of a corpus. A seed always gives the same inputs.
//!
//! A plain run is short. `cargo xtask fuzz` sets `TOLLGATE_FUZZ_SECONDS`, the duration of a run, and
//! `TOLLGATE_FUZZ_SEED`. A failing input is written to the directory in `TOLLGATE_FUZZ_OUT`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bstr::ByteSlice as _;

/// The directory `tests` of the repository.
pub fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The contents of the files in a directory there, ordered by name.
pub fn files(directory: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(tests().join(directory))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len());
        &from[index]
    }
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + random.below(16)).min(input.len());
    match random.below(7) {
        0 => drop(input.drain(at..end)),
        1 => {
            let byte = u8::try_from(random.below(256)).unwrap();
            input.insert(at, byte);
        }
        2 if at < input.len() => input[at] ^= 1 << random.below(8),
        3 => {
            let other = random.pick(corpus);
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend(&other[from..]);
        }
        4 => {
            let copy = input[at..end].to_vec();
            input.splice(at..at, copy);
        }
        _ => {
            let word = format!(" {} ", random.pick(words));
            input.splice(at..at, word.into_bytes());
        }
    }
    input.truncate(16 << 10);
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: not a number")),
    )
}

/// Runs `check` on the corpus and on mutations of it: `rounds` mutations, or as many as fit into
/// `TOLLGATE_FUZZ_SECONDS`.
pub fn fuzz(target: &str, corpus: &[Vec<u8>], words: &[&str], rounds: u64, check: fn(&[u8])) {
    let seed = setting("TOLLGATE_FUZZ_SEED").unwrap_or(1);
    let limit = setting("TOLLGATE_FUZZ_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    let try_one = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
            eprintln!("{target}, seed {seed} fails on `{}`", input.as_bstr());
            if let Some(directory) = std::env::var_os("TOLLGATE_FUZZ_OUT") {
                let path = Path::new(&directory).join(format!("{target}-{seed}"));
                fs::write(&path, input).unwrap();
                eprintln!("the input was written to `{}`", path.display());
            }
            resume_unwind(panic);
        }
    };
    corpus.iter().for_each(|input| try_one(input));
    let mut random = Random(seed);
    let mut done = 0_u64;
    while limit.map_or(done < rounds, |limit| start.elapsed() < limit) {
        let mut input = random.pick(corpus).clone();
        for _ in 0..=random.below(6) {
            mutate(&mut input, corpus, words, &mut random);
        }
        try_one(&input);
        done += 1;
    }
    println!("{target}: {done} inputs, seed {seed}");
}
