//! A cluster of two brokers for tests, which answers as a test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::messages::{Batch, Reader, Record, answer, metadata, number, produced, versions};

/// What a broker does with a batch.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Keeps the records and acknowledges them.
    Take,
    /// Keeps the records and closes the connection, as if it were killed before the answer.
    TakeAndDie,
    /// Acknowledges and closes the connection, as one that was idle.
    TakeAndClose,
    /// Answers with an error.
    Error(i16),
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Does not answer while the connection lives.
    Hang,
    /// Lets the other broker lead.
    Move,
}

type Plan = Box<dyn FnMut(&Batch) -> Reply + Send>;

struct Shared {
    plan: Mutex<Plan>,
    batches: Mutex<Vec<Batch>>,
    /// Records that were taken.
    taken: Mutex<Vec<Record>>,
    /// Connections of both brokers, while they run.
    open: Mutex<Option<Vec<TcpStream>>>,
    ports: Mutex<Vec<u16>>,
    leader: AtomicI32,
    /// Connections so far.
    connections: AtomicUsize,
    /// Error that the topic has.
    topic_error: Mutex<i16>,
    /// Requests with their versions.
    known: Mutex<Vec<(i16, i16, i16)>>,
    /// User and password that are wanted.
    password: Option<&'static str>,
    tls: Option<Arc<ServerConfig>>,
}

/// A cluster with the topic `audit`, which has three partitions.
pub(crate) struct Cluster {
    pub(crate) ports: [u16; 2],
    shared: Arc<Shared>,
}

/// Requests of Kafka 4.
const KNOWN: [(i16, i16, i16); 5] = [(0, 0, 13), (3, 0, 13), (17, 0, 1), (18, 0, 4), (36, 0, 2)];

impl Cluster {
    pub(crate) fn new(plan: impl FnMut(&Batch) -> Reply + Send + 'static) -> Self {
        Self::start(None, None, plan)
    }

    pub(crate) fn start(
        tls: Option<ServerConfig>,
        password: Option<&'static str>,
        plan: impl FnMut(&Batch) -> Reply + Send + 'static,
    ) -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports =
            [&listeners[0], &listeners[1]].map(|listener| listener.local_addr().unwrap().port());
        let shared = Arc::new(Shared {
            plan: Mutex::new(Box::new(plan)),
            batches: Mutex::default(),
            taken: Mutex::default(),
            open: Mutex::new(Some(Vec::new())),
            ports: Mutex::new(ports.to_vec()),
            leader: AtomicI32::new(0),
            connections: AtomicUsize::new(0),
            topic_error: Mutex::new(0),
            known: Mutex::new(KNOWN.to_vec()),
            password,
            tls: tls.map(Arc::new),
        });
        let cluster = Self { ports, shared };
        for (id, listener) in (0..).zip(listeners) {
            cluster.listen(id, listener);
        }
        cluster
    }

    fn listen(&self, id: i32, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut open = shared.open.lock().unwrap();
                let Some(streams) = open.as_mut() else {
                    break;
                };
                streams.push(stream.try_clone().unwrap());
                drop(open);
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let both = stream.try_clone().unwrap();
                    match &shared.tls {
                        None => serve(&shared, id, both),
                        Some(config) => {
                            let tls = ServerConnection::new(Arc::clone(config)).unwrap();
                            serve(&shared, id, StreamOwned::new(tls, both));
                        }
                    }
                    let _ended = stream.shutdown(Shutdown::Both);
                });
            }
        });
    }

    /// Closes all connections, and refuses others.
    pub(crate) fn kill(&self) {
        let streams = self.shared.open.lock().unwrap().take().unwrap();
        for stream in streams {
            let _ended = stream.shutdown(Shutdown::Both);
        }
        for port in self.ports {
            // A listener ends with the next connection.
            let _woken = TcpStream::connect(("127.0.0.1", port));
        }
    }

    pub(crate) fn restart(&self) {
        let begun = Instant::now();
        let listeners = self.ports.map(|port| {
            loop {
                match TcpListener::bind(("127.0.0.1", port)) {
                    Ok(listener) => break listener,
                    Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
                }
                thread::yield_now();
            }
        });
        *self.shared.open.lock().unwrap() = Some(Vec::new());
        for (id, listener) in (0..).zip(listeners) {
            self.listen(id, listener);
        }
    }

    pub(crate) fn plan(&self, plan: impl FnMut(&Batch) -> Reply + Send + 'static) {
        *self.shared.plan.lock().unwrap() = Box::new(plan);
    }

    /// Lets a broker lead all partitions; none, if its number is -1.
    pub(crate) fn lead(&self, broker: i32) {
        self.shared.leader.store(broker, Ordering::Relaxed);
    }

    /// Gives the topic an error.
    pub(crate) fn fail_topic(&self, error: i16) {
        *self.shared.topic_error.lock().unwrap() = error;
    }

    /// Announces other ports.
    pub(crate) fn announce(&self, ports: &[u16]) {
        *self.shared.ports.lock().unwrap() = ports.to_vec();
    }

    /// Knows only these requests, each with its oldest and latest version.
    pub(crate) fn know(&self, known: &[(i16, i16, i16)]) {
        *self.shared.known.lock().unwrap() = known.to_vec();
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.shared.batches.lock().unwrap().clone()
    }

    pub(crate) fn taken(&self) -> Vec<Record> {
        self.shared.taken.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How often each event was taken, by its number.
    pub(crate) fn events(&self) -> BTreeMap<u32, u32> {
        let mut events = BTreeMap::new();
        for number in self.taken().iter().filter_map(number) {
            *events.entry(number).or_default() += 1;
        }
        events
    }

    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.events().into_keys().collect()
    }
}

/// Answers the requests of a connection of a broker.
fn serve(shared: &Shared, id: i32, mut stream: impl Read + Write) {
    let mut is_known = shared.password.is_none();
    while let Some(request) = read(&mut stream) {
        let mut request = Reader(&request);
        let (key, version) = (request.number(2), request.number(2));
        let correlation = i32::try_from(request.number(4)).unwrap();
        assert_eq!(request.text(), "tollgate-ship");
        let body = match (key, version) {
            (18, 0) => versions(&shared.known.lock().unwrap()),
            (17, 1) => {
                let is_plain = request.text() == "PLAIN";
                let error: i16 = if is_plain { 0 } else { 33 };
                [&error.to_be_bytes()[..], b"\0\0\0\x01\0\x05PLAIN"].concat()
            }
            (36, 0) => {
                let length = usize::try_from(request.number(4)).unwrap();
                let text = request.take(length);
                is_known = Some(text) == shared.password.map(str::as_bytes);
                let error: i16 = if is_known { 0 } else { 58 };
                [&error.to_be_bytes()[..], b"\0\x02no\0\0\0\0"].concat()
            }
            _ if !is_known => return,
            (3, 4) => {
                assert_eq!(request.number(4), 1);
                let topic = request.text();
                assert_eq!(request.number(1), 0, "topics are created");
                let leader = shared.leader.load(Ordering::Relaxed);
                let error = *shared.topic_error.lock().unwrap();
                metadata(&shared.ports.lock().unwrap(), &topic, error, 3, leader)
            }
            (0, 7) => match take(shared, id, request.0) {
                Answer::Body(body) => body,
                Answer::Last(body) => {
                    let _sent = send(&mut stream, correlation, &body);
                    return;
                }
                Answer::Bytes(bytes) => {
                    let _sent = stream.write_all(&bytes).and_then(|()| stream.flush());
                    continue;
                }
                Answer::Close => return,
                Answer::Never => {
                    let _ended = stream.read_to_end(&mut Vec::new());
                    return;
                }
            },
            other => panic!("request {other:?}"),
        };
        if send(&mut stream, correlation, &body).is_err() {
            return;
        }
    }
}

enum Answer {
    Body(Vec<u8>),
    /// The connection is closed after it.
    Last(Vec<u8>),
    Bytes(Vec<u8>),
    Close,
    Never,
}

fn take(shared: &Shared, id: i32, body: &[u8]) -> Answer {
    let (topic, partition, batch) = produced(body);
    let error = |error| Answer::Body(answer(&topic, partition, error));
    if shared.leader.load(Ordering::Relaxed) != id {
        return error(6);
    }
    let reply = shared.plan.lock().unwrap()(&batch);
    let keep = || shared.taken.lock().unwrap().extend(batch.records.clone());
    shared.batches.lock().unwrap().push(batch.clone());
    match reply {
        Reply::Take => {
            keep();
            error(0)
        }
        Reply::TakeAndDie => {
            keep();
            Answer::Close
        }
        Reply::TakeAndClose => {
            keep();
            Answer::Last(answer(&topic, partition, 0))
        }
        Reply::Error(number) => error(number),
        Reply::Send(bytes) => Answer::Bytes(bytes),
        Reply::Hang => Answer::Never,
        Reply::Move => {
            shared.leader.store(1 - id, Ordering::Relaxed);
            error(6)
        }
    }
}

fn send(stream: &mut impl Write, correlation: i32, body: &[u8]) -> std::io::Result<()> {
    let length = i32::try_from(body.len() + 4).unwrap();
    let head = [length, correlation].map(i32::to_be_bytes).concat();
    stream.write_all(&[&head, body].concat())?;
    stream.flush()
}

/// Reads a request; `None` at the end of the connection.
fn read(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut request = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut request).ok()?;
    Some(request)
}
