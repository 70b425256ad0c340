//! What an event costs from the bytes of the ring to the log file, in CPU time, and that the log has the right bytes.
//!
//! `TOLLGATE_EVENTS=100000 taskset -c 1 cargo test --release -p tollgate event_cost -- --nocapture` passes as many events
//! through the daemon's own code: [`Encoder`] and [`AuditLog`], with their settings in a daemon without configuration. The
//! stages take turns, and each includes the one before it; `decode` and `decode, encode` remember nothing of earlier
//! events. The records of an `openat` and the `close` after it are those that the engine `tracepoint` wrote for the loop
//! of `tollgate-bench loader`. With `TOLLGATE_FILES=64` the opens take turns with as many files.

use std::collections::VecDeque;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use audit::ids::{Arch, Serial};
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::record::encode;
use audit::rule::parse_file;
use engine::{ClockReading, Decoder, Epoch, EventContext, RepeatedEvents, RuleKeys, TickClock};
use nix::time::{ClockId, clock_gettime};
use zerocopy::IntoBytes as _;

use crate::host::ThisMachine;
use crate::pipeline::batch::Batch;
use crate::pipeline::encoder::Encoder;
use crate::pipeline::loss_reporter::{Limits, LossReporter, RateLimiter};
use crate::pipeline::ring_thread::{BATCH_BYTES, RingStats};
use crate::pipeline::rule_stats::RuleStats;
use crate::sinks::audit_log::rotate::OldLogPolicy;
use crate::sinks::audit_log::{AuditLog, LogConfig, LogOptions};
use crate::sinks::viewers::{self, ViewerFeed};

const RULES: &str = "-a always,exit -F arch=b64 -S open,openat,close -F uid=65534\n";
const ROUNDS: usize = 7;
/// Events when nothing is measured.
const FEW_EVENTS: u64 = 3_000;
/// Events of a tick: three million in a second.
const EVENTS_PER_TICK: u64 = 12_000;
const FIRST_TICK: u64 = 1_000_000;
/// Where the records have the tick count, the address of the name, and the inode of the object.
const JIFFIES: usize = 8;
const SECOND_ARGUMENT: usize = 24;
const INODE: usize = 184;

/// A part of the path of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Decode,
    Text,
    Batch,
    File,
    Index,
}

const STAGES: [(Stage, &str); 5] = [
    (Stage::Decode, "decode"),
    (Stage::Text, "decode, encode"),
    (Stage::Batch, "batch"),
    (Stage::File, "batch, write"),
    (Stage::Index, "batch, write, index"),
];

#[test]
fn log_of_repeated_events_has_the_bytes_of_the_encoder() {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(u64::from_str(&text).unwrap())
    };
    let measured = number("TOLLGATE_EVENTS");
    let events = measured.unwrap_or(FEW_EVENTS);
    let files = number("TOLLGATE_FILES").unwrap_or(1);
    let rounds = measured.map_or(1, |_| ROUNDS);
    let mut times = [const { Vec::new() }; STAGES.len()];
    for round in 0..rounds {
        let mut logs = Vec::new();
        for ((stage, _), times) in STAGES.iter().zip(&mut times) {
            let (spent, log) = run(*stage, events, files);
            times.push(spent.as_nanos() / u128::from(events));
            logs.extend(log);
        }
        if round == 0 {
            let [expected, others @ ..] = logs.as_slice() else {
                panic!("there are logs");
            };
            assert!(!expected.is_empty());
            assert!(others.iter().all(|log| log == expected));
        }
    }
    println!("{events} events, half of them opens of {files} files");
    for ((_, name), times) in STAGES.iter().zip(&mut times) {
        times.sort_unstable();
        let (least, median, most) = (times[0], times[rounds / 2], times[rounds - 1]);
        let per_second = 1_000_000_000 / median.max(1);
        println!("{name}: {median} ns an event ({least} to {most}), {per_second} events/s");
    }
}

/// The records of the ring, in turn.
fn samples(files: u64) -> Vec<Vec<u64>> {
    let words = |bytes: &[u8]| {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        words
    };
    (0..files)
        .flat_map(|file| {
            let mut opened = include_bytes!("event_cost/openat.sample").to_vec();
            if files > 1 {
                opened[INODE..INODE + 8].copy_from_slice(&(1000 + file).to_le_bytes());
                opened[SECOND_ARGUMENT..SECOND_ARGUMENT + 8]
                    .copy_from_slice(&(0x7fff_0000 + 64 * file).to_le_bytes());
            }
            [
                words(&opened),
                words(include_bytes!("event_cost/close.sample")),
            ]
        })
        .collect()
}

/// Passes events through a stage and those before it. Returns the CPU time, and the log if there is one.
fn run(stage: Stage, events: u64, files: u64) -> (Duration, Option<Vec<u8>>) {
    let plan = plan();
    // Temporary directories may be in memory.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("audit.log");
    let mut log = open_log(&path, stage);
    let (_viewers, feed, viewer_thread) = viewers::start().unwrap();
    let mut encoder = encoder(&plan, feed);
    let mut decoder = Decoder::default();
    let mut text = Vec::new();
    let mut samples = samples(files);
    let before = cpu_time();
    for number in 0..events {
        let at = usize::try_from(number).unwrap() % samples.len();
        let sample = samples[at].as_mut_bytes();
        let jiffies = FIRST_TICK + number / EVENTS_PER_TICK;
        sample[JIFFIES..JIFFIES + 8].copy_from_slice(&jiffies.to_le_bytes());
        let length = usize::from(u16::from_le_bytes([sample[0], sample[1]]));
        let sample = &sample[..length];
        if matches!(stage, Stage::Decode | Stage::Text) {
            let context = EventContext {
                keys: &encoder.keys,
                time: encoder.clock.time_at(jiffies),
                serial: encoder.serial,
            };
            let event = decoder.event(sample, context).unwrap();
            if stage == Stage::Text {
                if text.len() >= BATCH_BYTES && events > FEW_EVENTS {
                    text.clear();
                }
                encode::event(&event, &mut text);
            }
            std::hint::black_box(&event);
            encoder.serial = encoder.serial.next();
        } else {
            encoder.take(sample);
            if encoder.batch.text.len() >= BATCH_BYTES {
                pass_on(&mut encoder.batch, &mut log);
            }
        }
    }
    pass_on(&mut encoder.batch, &mut log);
    let spent = cpu_time() - before;
    assert_eq!(encoder.stats.undecodable, 0, "records of another version");
    drop((encoder, log));
    viewer_thread.finish().unwrap();
    let log = match stage {
        Stage::Text if events <= FEW_EVENTS => Some(text),
        Stage::File | Stage::Index => Some(std::fs::read(path).unwrap()),
        _ => None,
    };
    (spent, log)
}

fn pass_on(batch: &mut Batch, log: &mut Option<AuditLog>) {
    if let Some(log) = log {
        let events = u64::try_from(batch.origins.len()).unwrap();
        assert_eq!(log.append(&batch.text, events, &mut ()).lost, 0);
    }
    batch.clear();
}

fn open_log(path: &Path, stage: Stage) -> Option<AuditLog> {
    let options = LogOptions {
        index: stage == Stage::Index,
        compress: false,
    };
    matches!(stage, Stage::File | Stage::Index).then(|| {
        let config = LogConfig::plain(path.to_owned());
        AuditLog::start(config, OldLogPolicy::AsConfigured, None, options).unwrap()
    })
}

fn plan() -> Plan {
    let (lines, _) = parse_file(RULES.as_bytes(), &ThisMachine);
    let mut list = RuleList::default();
    for line in lines {
        list.apply(0, line.number, line.command).unwrap();
    }
    Plan::compile(list.into_rules(), &[Arch::X86_64])
}

fn encoder(plan: &Plan, feed: ViewerFeed) -> Encoder {
    let epoch = Epoch::default();
    let mut rules = RuleStats::default();
    rules.add(epoch, plan);
    let now = ClockReading {
        jiffies: FIRST_TICK,
        wall_ns: 1_795_949_609_557_000_000,
    };
    Encoder {
        decoder: Decoder::default(),
        repeated: RepeatedEvents::default(),
        keys: Arc::new(RuleKeys::new(epoch, plan)),
        exclude: plan.exclude_list.clone(),
        user: plan.user_list.clone(),
        clock: TickClock::new(now, Duration::from_millis(4)),
        serial: Serial(2_147_483_648),
        passed: None,
        empty_at: None,
        batch: Batch::new(false),
        console: None,
        viewers: Arc::new(feed),
        stats: RingStats::default(),
        kernel_records: None,
        held: VecDeque::new(),
        limits: Arc::new(Limits::new()),
        rate: RateLimiter::default(),
        loss_reporter: LossReporter::default(),
        rules,
    }
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .unwrap()
        .into()
}
