//! A redis server on the loopback: a server that mostly makes syscalls.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{
    Case, FigureSpec, NOT_NAMED, NOT_NAMED_PICTURED, Sample, unmatched_variants, with_audit,
};
use crate::Options;
use crate::daemon::{Daemon, wait_until};
use crate::programs::{self, Program};
use crate::report::Bound;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, WorkDir, output};

#[derive(Debug)]
pub(crate) struct Redis;

/// Figure, test of redis-benchmark, figure of the server's CPU time.
const LOADS: [(&str, &str, &str); 2] = [
    ("SET", "set", "server CPU per SET"),
    ("GET", "get", "server CPU per GET"),
];

/// Servers per sample: their speed differs by a tenth, depending on where their memory lies.
const SERVERS: u32 = 8;
/// Requests per server.
const REQUESTS: u32 = 25_000;

const THROUGHPUT_GOAL: &[(&str, Bound)] = &[("tollgate", Bound::RatioAtLeast(0.93))];

impl Case for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn about(&self) -> &'static str {
        "redis on 127.0.0.1 with 50 clients, eight servers in turn, server and clients on separate CPUs where \
         there are two"
    }

    fn origin(&self) -> &'static str {
        "kernel commit e832bf48c8, audit: Reduce overhead using a coarse clock"
    }

    fn programs(&self) -> &'static [Program] {
        &[programs::REDIS, programs::REDIS_BENCHMARK]
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::more("SET", "/s")
                    .headlines(NOT_NAMED)
                    .goals(THROUGHPUT_GOAL),
                FigureSpec::more("GET", "/s")
                    .headlines(NOT_NAMED)
                    .goals(THROUGHPUT_GOAL),
                FigureSpec::less("server CPU per SET", "ns").headlines(NOT_NAMED),
                FigureSpec::less("server CPU per GET", "ns").headlines(NOT_NAMED_PICTURED),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        unmatched_variants(options, work)
    }

    fn seconds(&self) -> u32 {
        8
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let (servers, requests): (u32, u32) = if brief { (1, 500) } else { (SERVERS, REQUESTS) };
        let program = server(work_dir)?;
        let directory = work_dir.create_unprivileged("redis")?;
        let (spent, mode) = with_audit(work_dir, variant, || {
            let mut all = [ServerCost::default(); LOADS.len()];
            for _ in 0..servers {
                for (all, spent) in all
                    .iter_mut()
                    .zip(measure_server(work_dir, &program, &directory, requests)?)
                {
                    all.seconds += spent.seconds;
                    all.cpu += spent.cpu;
                }
            }
            Ok(all)
        })?;
        let requests = f64::from(servers * requests);
        let values = LOADS.iter().zip(spent).flat_map(|((name, _, cpu), spent)| {
            let rate = requests / spent.seconds;
            [(*name, rate), (*cpu, spent.cpu * 1e9 / requests)]
        });
        Ok(Sample {
            values: values.collect(),
            startup_line: mode.startup_line,
            ..Sample::default()
        })
    }
}

/// Cost of the requests of one load.
#[derive(Clone, Copy, Debug, Default)]
struct ServerCost {
    seconds: f64,
    /// # Units
    /// Seconds of server CPU time.
    cpu: f64,
}

/// Runs all loads against a new server.
fn measure_server(
    work_dir: &WorkDir,
    program: &Path,
    directory: &Path,
    requests: u32,
) -> anyhow::Result<[ServerCost; LOADS.len()]> {
    let port = free_port()?.to_string();
    let mut command = work_dir.unprivileged(CpuAffinity::First)?;
    command
        .arg(program)
        .args(["--bind", "127.0.0.1", "--port", &port])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .current_dir(directory);
    let mut server = Daemon::start(&mut command)?;
    let address = format!("127.0.0.1:{port}");
    wait_until("redis to listen", || {
        server.ensure_running()?;
        Ok(TcpStream::connect(&address).is_ok())
    })?;
    let mut all = [ServerCost::default(); LOADS.len()];
    for (spent, (name, test, _)) in all.iter_mut().zip(LOADS) {
        let before = server.cpu_time()?;
        let mut load = work_dir.unprivileged(CpuAffinity::Last)?;
        load.arg(programs::REDIS_BENCHMARK.command()?.get_program())
            .args(["-p", &port, "-t", test, "-c", "50", "--csv"])
            .args(["-n", &requests.to_string()]);
        let printed = output(&mut load)?;
        spent.cpu = server.cpu_time()?.saturating_sub(before).as_secs_f64();
        let rate = rate(&printed, name)
            .with_context(|| format!("unexpected output of redis-benchmark: {printed}"))?;
        spent.seconds = f64::from(requests) / rate;
    }
    server.stop()?;
    Ok(all)
}

/// The server is the program `redis-check-rdb`, which acts by the name it is called with.
fn server(work_dir: &WorkDir) -> anyhow::Result<PathBuf> {
    let program = work_dir.work.join("redis-server");
    if !program.exists() {
        symlink(programs::REDIS.command()?.get_program(), &program)
            .context("cannot create a link to the server")?;
    }
    Ok(program)
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a port")?;
    Ok(listener.local_addr().context("cannot find a port")?.port())
}

/// Requests per second: the second field of the line of the test.
fn rate(printed: &str, test: &str) -> Option<f64> {
    printed.lines().find_map(|line| {
        let mut fields = line.split(',').map(|field| field.trim_matches('"'));
        (fields.next()? == test)
            .then(|| fields.next()?.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_second_field() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"106382.98\",\"0.245\"\n";
        assert_eq!(rate(printed, "SET"), Some(106_382.98));
        assert_eq!(rate(printed, "GET"), None);
    }
}
