//! Syscalls with socket addresses.

use nix::libc::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM};

use super::steps::{ProgramStep, Run, RunAs, numbers, step};
use crate::program::{Arg, Entry};

pub(super) fn runs(entry: Entry) -> Vec<Run> {
    let run = |user, steps| Run { user, entry, steps };
    vec![
        run(RunAs::Root, inet()),
        run(RunAs::Root, unix()),
        run(RunAs::User, messages()),
        run(RunAs::User, failing()),
    ]
}

/// Through `socketcall`.
pub(super) fn runs_32(entry: Entry) -> Vec<Run> {
    // The first free descriptor: an array of arguments cannot contain results.
    let socket = || Arg::Number(3);
    let call = |number: i32, args: Vec<Arg>| step!("socketcall", number, Arg::Words(args));
    let (bind, connect, listen, sendto) = (2, 3, 4, 11);
    let steps = vec![
        call(1, vec![AF_INET.into(), SOCK_DGRAM.into(), 0.into()]),
        call(bind, vec![socket(), inet4(4000), 16.into()]),
        call(connect, vec![socket(), inet4(53), 16.into()]),
        call(
            sendto,
            vec![
                socket(),
                "x".into(),
                1.into(),
                0.into(),
                inet4(54),
                16.into(),
            ],
        ),
        call(listen, vec![socket(), 5.into()]),
        call(connect, vec![77.into(), inet4(53), 16.into()]),
        call(connect, vec![socket(), 1.into(), 16.into()]),
        call(99, vec![]),
        step!("socketcall", connect, 1),
        step!("bind", socket(), inet4(4001), 16),
        step!("connect", socket(), inet4(53), 16),
        step!("connect", socket(), named("missing"), 110),
        step!("sendto", socket(), "x", 1, 0, inet4(53), 16),
        call(1, vec![AF_UNIX.into(), SOCK_STREAM.into(), 0.into()]),
        call(bind, vec![4.into(), named("/tmp/w/socket"), 110.into()]),
        call(
            8,
            vec![
                AF_UNIX.into(),
                SOCK_STREAM.into(),
                0.into(),
                Arg::Bytes(vec![0; 8]),
            ],
        ),
    ];
    vec![Run {
        user: RunAs::Root,
        entry,
        steps,
    }]
}

fn family(family: i32) -> Vec<u8> {
    let [low, high, ..] = family.to_le_bytes();
    vec![low, high]
}

fn inet4(port: u16) -> Arg {
    let mut bytes = family(AF_INET);
    bytes.extend(port.to_be_bytes());
    bytes.extend([127, 0, 0, 1]);
    bytes.resize(16, 0);
    Arg::Bytes(bytes)
}

fn inet6(port: u16) -> Arg {
    let mut bytes = family(AF_INET6);
    bytes.extend(port.to_be_bytes());
    bytes.resize(23, 0);
    bytes.extend([1, 0, 0, 0, 0]);
    Arg::Bytes(bytes)
}

fn named(name: &str) -> Arg {
    let mut bytes = family(AF_UNIX);
    bytes.extend(name.as_bytes());
    bytes.resize(110, 0);
    Arg::Bytes(bytes)
}

fn inet() -> Vec<ProgramStep> {
    let (four, six, one) = (
        || Arg::Saved("four"),
        || Arg::Saved("six"),
        || Arg::Bytes(b"x".into()),
    );
    let one_int = || numbers([1_u32.to_ne_bytes()]);
    vec![
        step!("socket", AF_INET, SOCK_DGRAM, 0).save("four"),
        step!("bind", four(), inet4(4000), 16),
        step!("connect", four(), inet4(53), 16),
        step!("sendto", four(), one(), 1, 0, inet4(53), 16),
        step!("sendto", four(), one(), 1, 0, 0, 0),
        step!("socket", AF_INET6, SOCK_DGRAM, 0).save("six"),
        step!("bind", six(), inet6(4000), 28),
        step!("connect", six(), inet6(53), 28),
        step!("sendto", six(), one(), 1, 0, inet6(54), 28),
        step!("setsockopt", four(), 1, 2, one_int(), 4),
        step!("connect", four(), Arg::Bytes(vec![0; 16]), 16),
        step!("socket", AF_NETLINK, SOCK_RAW, 0).save("netlink"),
        step!(
            "bind",
            Arg::Saved("netlink"),
            numbers([16_u32, 0, 1].map(u32::to_ne_bytes)),
            12
        ),
        step!("socket", AF_INET, SOCK_STREAM, 0).save("stream"),
        step!("connect", Arg::Saved("stream"), inet4(9), 16),
    ]
}

fn unix() -> Vec<ProgramStep> {
    let room = || Arg::Shared("room", vec![0; 128]);
    let size = || Arg::Shared("size", 128_u32.to_ne_bytes().into());
    let (listener, client) = (|| Arg::Saved("listener"), || Arg::Saved("client"));
    let stream = || step!("socket", AF_UNIX, SOCK_STREAM, 0);
    vec![
        stream().save("listener"),
        step!("bind", listener(), named("/tmp/w/socket"), 110),
        step!("listen", listener(), 5),
        stream().save("client"),
        step!("connect", client(), named("/tmp/w/socket"), 110),
        step!("accept", listener(), room(), size()).save("server"),
        step!("getsockname", client(), room(), size()),
        step!("getpeername", client(), room(), size()),
        step!("getsockname", Arg::Saved("server"), room(), size()),
        stream().save("second"),
        step!("connect", Arg::Saved("second"), named("socket"), 9),
        step!("accept4", listener(), 0, 0, 0),
        step!("sendto", client(), "hello", 5, 0, 0, 0),
        step!(
            "recvfrom",
            Arg::Saved("server"),
            room(),
            100,
            0,
            room(),
            size()
        ),
        stream().save("abstract"),
        step!("bind", Arg::Saved("abstract"), named("\0name"), 7),
        step!("listen", Arg::Saved("abstract"), 5),
        stream().save("third"),
        step!("connect", Arg::Saved("third"), named("\0name"), 7),
        stream().save("auto"),
        step!("bind", Arg::Saved("auto"), named(""), 2),
        stream().save("relative"),
        step!("bind", Arg::Saved("relative"), named("sub/socket"), 110),
        stream().save("again"),
        step!("bind", Arg::Saved("again"), named("/tmp/w/socket"), 110),
        step!("connect", Arg::Saved("again"), named("missing"), 110),
        step!("connect", Arg::Saved("again"), named("file"), 110),
        step!(
            "connect",
            Arg::Saved("again"),
            named("/tmp/w/sub/socket"),
            110
        ),
        step!("bind", Arg::Saved("again"), named("missing/socket"), 110),
    ]
}

/// A `struct msghdr` with an address and one part.
fn header(address: Arg, size: i32) -> Arg {
    let part = Arg::Words(vec![Arg::Bytes(b"part".into()), 4.into()]);
    Arg::Words(vec![
        address,
        size.into(),
        part,
        1.into(),
        0.into(),
        0.into(),
        0.into(),
        // A `struct mmsghdr` continues with a length.
        0.into(),
    ])
}

fn messages() -> Vec<ProgramStep> {
    let socket = || Arg::Saved("socket");
    vec![
        step!("socket", AF_INET, SOCK_DGRAM, 0).save("socket"),
        step!("bind", socket(), inet4(4001), 16),
        step!("sendmsg", socket(), header(inet4(4001), 16), 0),
        step!("sendmsg", socket(), header(0.into(), 0), 0),
        step!("sendmmsg", socket(), header(inet4(4001), 16), 1, 0),
        step!(
            "recvmsg",
            socket(),
            header(Arg::Bytes(vec![0; 16]), 16),
            0x40
        ),
        step!(
            "recvfrom",
            socket(),
            Arg::Bytes(vec![0; 8]),
            8,
            0x40,
            Arg::Bytes(vec![0; 16]),
            numbers([16_u32.to_ne_bytes()])
        ),
        step!("socket", AF_UNIX, SOCK_DGRAM, 0).save("datagrams"),
        step!(
            "bind",
            Arg::Saved("datagrams"),
            named("/tmp/w/datagrams"),
            110
        ),
        step!(
            "sendto",
            Arg::Saved("datagrams"),
            "x",
            1,
            0,
            named("/tmp/w/datagrams"),
            110
        ),
        step!(
            "sendto",
            Arg::Saved("datagrams"),
            "x",
            1,
            0,
            named("missing"),
            110
        ),
        step!(
            "sendmsg",
            Arg::Saved("datagrams"),
            header(named("datagrams"), 12),
            0
        ),
    ]
}

fn failing() -> Vec<ProgramStep> {
    let socket = || Arg::Saved("socket");
    vec![
        step!("socket", AF_INET, SOCK_STREAM, 0).save("socket"),
        step!("connect", 77, inet4(53), 16),
        step!("connect", 0, inet4(53), 16),
        step!("connect", socket(), inet4(53), 4),
        step!("connect", socket(), inet4(53), 500),
        step!("connect", socket(), inet4(53), -1),
        step!("connect", socket(), inet4(53), 0),
        step!("connect", socket(), 1, 16),
        step!(
            "connect",
            socket(),
            Arg::Bytes(b"\xff\xff12345678901234".into()),
            16
        ),
        step!("bind", socket(), inet4(53), 16),
        step!("bind", socket(), inet6(53), 28),
        step!("bind", 77, inet4(4002), 16),
        step!("accept", socket(), 0, 0),
        step!("sendto", 77, "x", 1, 0, inet4(53), 16),
        step!("sendmsg", socket(), 1, 0),
        step!("socket", AF_UNIX, SOCK_STREAM, 0).save("unix"),
        step!("bind", Arg::Saved("unix"), named("/etc/socket"), 110),
        step!("connect", Arg::Saved("unix"), named("own/socket"), 110),
    ]
}
