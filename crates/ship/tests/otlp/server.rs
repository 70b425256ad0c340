//! A collector for tests, which answers as a test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::messages::records;
use crate::place::FIRST;

/// What a collector does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Keeps the records and answers 200.
    Take,
    /// Keeps the records, answers 200, and closes the connection without a word.
    TakeAndClose,
    /// Keeps the records and closes the connection, as if it were killed before the answer.
    TakeAndDie,
    /// Keeps the records and sends these bytes.
    TakeAndSend(Vec<u8>),
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes again and again.
    SendForEver(Vec<u8>),
    /// Does not answer while the connection lives.
    Hang,
}

impl Reply {
    /// An answer with a status, lines of headers and a body.
    pub(crate) fn status(status: u16, headers: &str, body: &[u8]) -> Self {
        Self::Send(answer(status, headers, body))
    }
}

pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let head = format!("HTTP/1.1 {status} Text\r\n{headers}Content-Length: {len}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: Instant,
    /// The first line and the headers.
    pub(crate) head: Vec<String>,
    /// Bytes of the body on the wire, and without compression.
    pub(crate) len: usize,
    pub(crate) records: Vec<Value>,
}

type Plan = Box<dyn FnMut(&Request) -> Reply + Send>;

struct Shared {
    plan: Mutex<Plan>,
    requests: Mutex<Vec<Request>>,
    /// Records that were taken.
    taken: Mutex<Vec<Value>>,
    /// Connections, while it runs.
    open: Mutex<Option<Vec<TcpStream>>>,
    tls: Option<Arc<ServerConfig>>,
}

/// A collector.
pub(crate) struct Server {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Server {
    pub(crate) fn new(plan: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        Self::start(None, plan)
    }

    pub(crate) fn start(
        tls: Option<ServerConfig>,
        plan: impl FnMut(&Request) -> Reply + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            plan: Mutex::new(Box::new(plan)),
            requests: Mutex::default(),
            taken: Mutex::default(),
            open: Mutex::new(None),
            tls: tls.map(Arc::new),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, shared };
        server.listen(listener);
        server
    }

    fn listen(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        *shared.open.lock().unwrap() = Some(Vec::new());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut open = shared.open.lock().unwrap();
                let Some(streams) = open.as_mut() else {
                    break;
                };
                streams.push(stream.try_clone().unwrap());
                drop(open);
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    serve(&shared, stream.try_clone().unwrap());
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
        // The listener ends with the next connection.
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }

    pub(crate) fn restart(&self) {
        let begun = Instant::now();
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", self.port)) {
                Ok(listener) => break listener,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
            }
            thread::yield_now();
        };
        self.listen(listener);
    }

    pub(crate) fn plan(&self, plan: impl FnMut(&Request) -> Reply + Send + 'static) {
        *self.shared.plan.lock().unwrap() = Box::new(plan);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(crate) fn taken(&self) -> Vec<Value> {
        self.shared.taken.lock().unwrap().clone()
    }

    /// How often each event was taken, by its number from [`FIRST`].
    pub(crate) fn events(&self) -> BTreeMap<u32, u32> {
        let mut events = BTreeMap::new();
        for record in self.shared.taken.lock().unwrap().iter() {
            if let Some(number) = number(record) {
                *events.entry(number).or_default() += 1;
            }
        }
        events
    }

    /// Numbers of events that were taken.
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.events().into_keys().collect()
    }
}

/// Number of an event from [`FIRST`].
pub(crate) fn number(record: &Value) -> Option<u32> {
    if record["name"] != "audit.event" {
        return None;
    }
    let serial = record["attributes"]["audit.serial"].as_u64().unwrap();
    u32::try_from(serial).unwrap().checked_sub(FIRST)
}

fn serve(shared: &Shared, stream: TcpStream) {
    match &shared.tls {
        None => requests(shared, stream),
        Some(config) => {
            let tls = ServerConnection::new(Arc::clone(config)).unwrap();
            requests(shared, StreamOwned::new(tls, stream));
        }
    }
}

/// Answers the requests of a connection.
fn requests(shared: &Shared, stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        let reply = shared.plan.lock().unwrap()(&request);
        shared.requests.lock().unwrap().push(request.clone());
        let take = || shared.taken.lock().unwrap().extend(request.records.clone());
        let to = stream.get_mut();
        let sent = match &reply {
            Reply::Take | Reply::TakeAndClose => {
                take();
                to.write_all(&answer(
                    200,
                    "Content-Type: application/x-protobuf\r\n",
                    b"",
                ))
            }
            Reply::TakeAndDie => {
                take();
                return;
            }
            Reply::TakeAndSend(bytes) => {
                take();
                to.write_all(bytes)
            }
            Reply::Send(bytes) => to.write_all(bytes),
            Reply::SendForEver(bytes) => {
                while to.write_all(bytes).is_ok() {}
                return;
            }
            Reply::Hang => {
                let _ended = stream.read_to_end(&mut Vec::new());
                return;
            }
        };
        if sent.and_then(|()| stream.get_mut().flush()).is_err()
            || matches!(reply, Reply::TakeAndClose)
        {
            return;
        }
    }
}

/// Reads a request; `None` at the end of the connection.
fn read(stream: &mut impl std::io::BufRead) -> Option<Request> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let value = |name: &str| {
        let found = head.iter().find_map(|line| line.strip_prefix(name));
        found.map(str::trim)
    };
    let len = value("Content-Length:").unwrap().parse().unwrap();
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    assert_eq!(value("Content-Type:"), Some("application/x-protobuf"));
    if let Some(encoding) = value("Content-Encoding:") {
        assert_eq!(encoding, "gzip");
        let mut plain = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
        body = plain;
    }
    Some(Request {
        at: Instant::now(),
        head: head.clone(),
        len: body.len(),
        records: records(&body),
    })
}
