//! A redis server under a bounded load on the loopback: a server that mostly calls.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Case, Figure, Sample, in_state, plain};
use crate::bench::Options;
use crate::bench::component::{self, Component};
use crate::bench::daemon::{Daemon, wait_until};
use crate::bench::place::{Place, Placement, output};
use crate::bench::report::Bound;
use crate::bench::variant::Variant;

#[derive(Debug)]
pub(crate) struct Redis;

/// Figure, test of redis-benchmark, figure of the server's CPU time.
const LOADS: [(&str, &str, &str); 2] = [
    ("SET", "set", "server CPU a SET"),
    ("GET", "get", "server CPU a GET"),
];

const SERVED: &[(&str, Bound)] = &[("tollgate", Bound::AtLeast(0.93))];

impl Case for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn about(&self) -> &'static str {
        "redis on 127.0.0.1 with 50 clients, server and clients on CPUs of their own where there are two"
    }

    fn seed(&self) -> &'static str {
        "kernel commit e832bf48c8, audit: Reduce overhead using a coarse clock"
    }

    fn components(&self) -> &'static [Component] {
        &[component::REDIS, component::REDIS_BENCHMARK]
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::more("SET", "/s").goals(SERVED),
                Figure::more("GET", "/s").goals(SERVED),
                Figure::less("server CPU a SET", "ns"),
                Figure::less("server CPU a GET", "ns"),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        plain(options, work)
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let requests: u32 = if brief { 500 } else { 150_000 };
        let program = server(place)?;
        let directory = place.nobodys("redis")?;
        let (values, spent) = in_state(place, variant, || {
            let port = free_port()?.to_string();
            let mut command = place.as_nobody(Placement::OneCpu)?;
            command
                .arg(&program)
                .args(["--bind", "127.0.0.1", "--port", &port])
                .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
                .current_dir(&directory);
            let mut server = Daemon::start(&mut command)?;
            let address = format!("127.0.0.1:{port}");
            wait_until("redis to listen", || {
                server.check()?;
                Ok(TcpStream::connect(&address).is_ok())
            })?;
            let mut values = Vec::new();
            for (name, test, cpu) in LOADS {
                let before = server.cpu_time()?;
                let mut load = place.as_nobody(Placement::LastCpu)?;
                load.arg(component::REDIS_BENCHMARK.command()?.get_program())
                    .args(["-p", &port, "-t", test, "-c", "50", "--csv"])
                    .args(["-n", &requests.to_string()]);
                let printed = output(&mut load)?;
                let spent = server.cpu_time()?.saturating_sub(before);
                let rate = rate(&printed, name)
                    .with_context(|| format!("redis-benchmark has printed {printed}"))?;
                values.push((name, rate));
                values.push((cpu, spent.as_secs_f64() * 1e9 / f64::from(requests)));
            }
            server.end()?;
            Ok(values)
        })?;
        Ok(Sample {
            values,
            said: spent.said,
            ..Sample::default()
        })
    }
}

/// The server: one program with `redis-check-rdb`, which goes by the name that it is called by.
fn server(place: &Place) -> anyhow::Result<PathBuf> {
    let program = place.work.join("redis-server");
    if !program.exists() {
        symlink(component::REDIS.command()?.get_program(), &program)
            .context("cannot name the server")?;
    }
    Ok(program)
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a port")?;
    Ok(listener.local_addr().context("cannot find a port")?.port())
}

/// Requests a second: the second field of the test's line.
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
    fn the_rate_is_the_second_field() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"106382.98\",\"0.245\"\n";
        assert_eq!(rate(printed, "SET"), Some(106_382.98));
        assert_eq!(rate(printed, "GET"), None);
    }
}
