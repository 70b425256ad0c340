//! The event loop: one thread serves all connections and writes all logs.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};

use super::body_memory::BodyMemory;
use super::config::Limits;
use super::connection::{Connection, End, READ_BYTES, Waits};
use super::hosts::Hosts;
use super::prefix::{canonical, network};
use super::progress::Progress;
use super::refusal_messages::RefusalMessages;
use super::stream::{PeerStream, StreamError};
use super::sync::{Syncer, Work};
use super::tls::TlsAcceptor;

/// How often logs are synced, time-outs checked and the status written.
const TICK: Duration = Duration::from_secs(1);
/// Connections that are accepted before others are served.
const ACCEPTS: usize = 64;
const EVENTS: usize = 256;
/// Token of the signal. Those of listeners are their indexes, and those of connections follow.
const WAKE: u64 = u64::MAX;
/// A machine that vanished is noticed after some two minutes.
const KEEP_IDLE: Duration = Duration::from_secs(60);
const KEEP_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_COUNT: u32 = 4;

/// The event loop.
#[derive(Debug)]
pub(super) struct Listener {
    epoll: Epoll,
    sockets: Vec<Socket>,
    tls: Option<TlsAcceptor>,
    /// Whether the sockets are left alone until the next tick, because there are too many open files.
    is_exhausted: bool,
    connections: HashMap<u64, Connection>,
    per_address: HashMap<IpAddr, usize>,
    next_token: u64,
    hosts: Hosts,
    limits: Limits,
    memory: BodyMemory,
    syncer: Syncer,
    progress: Progress,
    last_status: String,
    messages: RefusalMessages,
    buffer: Vec<u8>,
}

/// A socket at which connections come.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: TcpListener,
    /// Whether they begin with TLS.
    pub(super) has_tls: bool,
}

/// Opens sockets: without TLS, and with it.
///
/// # Errors
/// One cannot be opened.
pub(super) fn bind(plain: &[SocketAddr], with_tls: &[SocketAddr]) -> anyhow::Result<Vec<Socket>> {
    let open = |address: &SocketAddr, has_tls| {
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot listen at `{address}`: ports below 1024 need CAP_NET_BIND_SERVICE")
        })?;
        listener.set_nonblocking(true)?;
        Ok(Socket { listener, has_tls })
    };
    let plain = plain.iter().map(|address| open(address, false));
    let with_tls = with_tls.iter().map(|address| open(address, true));
    plain.chain(with_tls).collect()
}

impl Listener {
    /// An event loop.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(super) fn new(
        sockets: Vec<Socket>,
        tls: Option<TlsAcceptor>,
        hosts: Hosts,
        limits: Limits,
        syncer: Syncer,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("cannot make an epoll")?;
        let next_token = u64::try_from(sockets.len())?;
        let mut listener = Self {
            epoll,
            sockets,
            tls,
            is_exhausted: true,
            connections: HashMap::new(),
            per_address: HashMap::new(),
            next_token,
            hosts,
            limits,
            memory: BodyMemory::new(),
            syncer,
            progress,
            last_status: String::new(),
            messages: RefusalMessages::default(),
            buffer: vec![0; READ_BYTES],
        };
        listener.listen()?;
        Ok(listener)
    }

    /// Serves until `stop` is true; `wake` tells that it is.
    ///
    /// # Errors
    /// The kernel does not tell what happens.
    pub(super) fn run(mut self, wake: &EventFd, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
        self.epoll
            .add(wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))
            .context("cannot wait for signals")?;
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut next_tick = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick(now)?;
            }
            let left = next_tick.saturating_duration_since(Instant::now());
            let timeout = EpollTimeout::try_from(left).unwrap_or(EpollTimeout::ZERO);
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(nix::errno::Errno::EINTR) => 0,
                count => count.context("cannot wait for connections")?,
            };
            for event in events.iter().take(count) {
                match event.data() {
                    WAKE => {}
                    token => match usize::try_from(token)
                        .ok()
                        .filter(|&index| index < self.sockets.len())
                    {
                        Some(index) => self.accept(index),
                        None => self.serve(token),
                    },
                }
            }
        }
        self.end();
        Ok(())
    }

    /// Waits for connections at the sockets again.
    fn listen(&mut self) -> anyhow::Result<()> {
        if !self.is_exhausted {
            return Ok(());
        }
        for (socket, token) in self.sockets.iter().zip(0..) {
            self.epoll
                .add(
                    &socket.listener,
                    EpollEvent::new(EpollFlags::EPOLLIN, token),
                )
                .context("cannot wait for connections")?;
        }
        self.is_exhausted = false;
        Ok(())
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.sockets.get(index) else {
                return;
            };
            let has_tls = socket.has_tls;
            match socket.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer, has_tls),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The peer has gone.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    self.messages
                        .tell("accept", format_args!("cannot accept connections: {error}"));
                    for socket in &self.sockets {
                        // It was added.
                        let _is_known = self.epoll.delete(&socket.listener);
                    }
                    self.is_exhausted = true;
                    return;
                }
            }
        }
    }

    /// Adds a connection, if the configuration has its peer and the limits are not reached.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr, has_tls: bool) {
        let address = canonical(peer.ip());
        let tls = self.tls.as_mut().filter(|_| has_tls);
        let has_certificate = tls.as_ref().is_some_and(|tls| tls.asks_for_certificates());
        let refused = &mut self.progress.refused;
        let writes = self.hosts.peers.find(address).filter(|_| !has_certificate);
        if writes.is_none() && !has_certificate {
            refused.unknown += 1;
            let line = format_args!(
                "connection from {address} refused: it is in neither [hosts] nor [networks]"
            );
            return self.messages.tell("unknown", line);
        }
        if self.limits.privileged_ports && peer.port() >= 1024 && !has_certificate {
            refused.port += 1;
            let line = format_args!(
                "connection from {address} port {} refused: set `local_port` of audisp-remote below 1024",
                peer.port()
            );
            return self.messages.tell("port", line);
        }
        let count = self.per_address.get(&address).copied().unwrap_or(0);
        // Peers that nobody knows cannot take the places of all others, nor one network those of all that are unknown.
        let unknown = self.connections.values().filter(|peer| peer.is_unknown());
        let near = unknown
            .clone()
            .filter(|peer| network(peer.address) == network(address));
        let has_unknown = has_certificate
            && (unknown.count() >= self.limits.connections.div_ceil(4)
                || near.count() >= self.limits.connections_per_address);
        if self.connections.len() >= self.limits.connections
            || count >= self.limits.connections_per_address
            || has_unknown
        {
            refused.limit += 1;
            let line = format_args!(
                "connection from {address} refused: it has {count} and the listener {} connections",
                self.connections.len()
            );
            return self.messages.tell("limit", line);
        }
        let config = tls.map(TlsAcceptor::config);
        let stream = prepare(&stream)
            .map_err(StreamError::from)
            .and_then(|()| PeerStream::new(stream, config));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                return self.messages.tell(
                    "socket",
                    format_args!("connection from {address} refused: {error}"),
                );
            }
        };
        let token = self.next_token;
        self.next_token += 1;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        if let Err(error) = self.epoll.add(&stream.tcp, event) {
            return self.messages.tell(
                "socket",
                format_args!("connection from {address} refused: {error}"),
            );
        }
        *self.per_address.entry(address).or_default() += 1;
        self.connections.insert(
            token,
            Connection::new(stream, address, writes, self.memory.clone()),
        );
    }

    fn serve(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let before = connection.waits();
        let was_unknown = connection.is_unknown();
        let mut result = connection.serve(&mut self.buffer, &mut self.hosts);
        if was_unknown {
            result = result.and_then(|()| self.check_places(token));
        }
        self.proceed(token, before, result);
    }

    /// Bounds the connections of one host whose certificates come from many addresses.
    fn check_places(&self, token: u64) -> Result<(), End> {
        let connection = self.connections.get(&token);
        let Some(writes) = connection.and_then(Connection::writes) else {
            return Ok(());
        };
        let same = self.connections.values();
        let same = same.filter(|peer| peer.writes() == Some(writes)).count();
        match same > self.limits.connections_per_address {
            true => Err(End::Places(same)),
            false => Ok(()),
        }
    }

    /// Waits for what a connection waits for now, or ends it.
    fn proceed(&mut self, token: u64, before: Waits, result: Result<(), End>) {
        let result = result.and_then(|()| {
            let Some(connection) = self.connections.get(&token) else {
                return Ok(());
            };
            wait_for(
                &self.epoll,
                &connection.stream.tcp,
                token,
                before,
                connection.waits(),
            )?;
            Ok(())
        });
        if let Err(end) = result {
            self.close(token, &end);
        }
    }

    fn close(&mut self, token: u64, end: &End) {
        let Some(connection) = self.connections.remove(&token) else {
            return;
        };
        let address = connection.address;
        if connection.waits() != Waits::Disk {
            // It was added.
            let _is_known = self.epoll.delete(&connection.stream.tcp);
        }
        connection.close(end, &mut self.hosts);
        if let Some(count) = self.per_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&address);
            }
        }
        let reason = match end {
            End::Peer | End::Listener => return,
            End::Protocol(_) => {
                self.progress.refused.protocol += 1;
                "protocol"
            }
            End::Tls(_) | End::NoTls | End::TlsRefused | End::Name(_) => {
                self.progress.refused.tls += 1;
                self.progress.tls_refusal = Some(format!("{address}: {end}"));
                "tls"
            }
            End::Places(_) => {
                self.progress.refused.limit += 1;
                "limit"
            }
            End::Socket(_) => "socket",
            End::Write(_) => "write",
            End::Host(_) => "host",
            End::Idle(_) => "idle",
        };
        self.messages.tell(
            reason,
            format_args!("connection from {address} closed: {end}"),
        );
    }

    /// What is done each second.
    fn tick(&mut self, now: Instant) -> anyhow::Result<()> {
        self.listen()?;
        self.hosts.update_room();
        let waiting = self.connections.iter();
        let waiting: Vec<u64> = waiting
            .filter(|(_, connection)| connection.waits() == Waits::Disk)
            .map(|(token, _)| *token)
            .collect();
        for token in waiting {
            if let Some(connection) = self.connections.get_mut(&token) {
                let result = connection.resume(&mut self.hosts);
                self.proceed(token, Waits::Disk, result);
            }
        }
        let idle = self.limits.idle;
        let late = self.connections.iter().filter_map(|(token, connection)| {
            Some((*token, connection.check_time(now, idle).err()?))
        });
        let late: Vec<(u64, End)> = late.collect();
        for (token, end) in late {
            self.close(token, &end);
        }
        if !self.syncer.is_busy() {
            let work = self.work();
            if !work.files.is_empty() || work.status.is_some() {
                self.syncer.give(work);
            }
        }
        Ok(())
    }

    /// What there is to do for the thread that syncs.
    fn work(&mut self) -> Work {
        let files = self.hosts.take_unsynced();
        self.progress.connections = self.connections.len();
        self.progress.sync_error = self.syncer.error();
        let tls = self.tls.as_ref();
        self.progress.tls_error = tls.and_then(TlsAcceptor::error).map(str::to_owned);
        self.progress.hosts = self.hosts.all_progress();
        self.progress.networks = self.hosts.networks().to_vec();
        let text = self.progress.text();
        let status = (text != self.last_status).then(|| text.clone());
        self.last_status = text;
        Work { files, status }
    }

    /// Tells the peers, and waits until all logs are on the disk.
    fn end(mut self) {
        let tokens: Vec<u64> = self.connections.keys().copied().collect();
        for token in tokens {
            self.close(token, &End::Listener);
        }
        self.progress.is_ended = true;
        let last = self.work();
        self.syncer.end(last);
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, KEEP_IDLE)?;
    set_tcp_keepintvl(stream, KEEP_INTERVAL)?;
    set_tcp_keepcnt(stream, KEEP_COUNT)?;
    Ok(())
}

/// Changes what is waited for. A socket that waits for the disk is not in the epoll, which always tells of errors.
fn wait_for(
    epoll: &Epoll,
    stream: impl AsFd,
    token: u64,
    before: Waits,
    now: Waits,
) -> io::Result<()> {
    let flags = match now {
        Waits::Writable => EpollFlags::EPOLLOUT,
        Waits::Readable | Waits::Disk => EpollFlags::EPOLLIN,
    };
    let mut event = EpollEvent::new(flags, token);
    match (before, now) {
        (before, now) if before == now => {}
        (Waits::Disk, _) => epoll.add(stream, event)?,
        (_, Waits::Disk) => epoll.delete(stream)?,
        _ => epoll.modify(stream, &mut event)?,
    }
    Ok(())
}
