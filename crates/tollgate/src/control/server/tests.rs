//! Clients of every kind against a server without a daemon.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::EventFd;
use tempfile::TempDir;

use super::super::client::Client;
use super::super::protocol::{Envelope, VERSION};
use super::*;

/// A server that answers each request with the number of requests so far.
struct TestServer {
    directory: TempDir,
    stop: std::sync::Arc<EventFd>,
    thread: JoinHandle<u64>,
}

impl TestServer {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Server::listen(&directory.path().join("a/control"), None).unwrap();
        let stop = std::sync::Arc::new(EventFd::new().unwrap());
        let stopped = std::sync::Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut count = 0;
            loop {
                let mut ready = [
                    PollFd::new(server.as_fd(), PollFlags::POLLIN),
                    PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
                ];
                poll(&mut ready, poll_timeout(server.time_left())).unwrap();
                if ready[1].any().unwrap() {
                    return count;
                }
                server.serve(&mut |_, _| {
                    count += 1;
                    Reply::Answer(Answer::Was(count))
                });
                assert!(server.connections.len() <= MAX_CONNECTIONS);
            }
        });
        Self {
            directory,
            stop,
            thread,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a/control")
    }

    fn stream(&self) -> UnixStream {
        UnixStream::connect(self.path()).unwrap()
    }

    #[track_caller]
    fn ask(&self) -> u64 {
        let mut client = Client::connect(&self.path()).unwrap();
        match client.ask(Request::Status).unwrap() {
            Answer::Was(count) => count,
            answer => panic!("{answer:?}"),
        }
    }

    fn stop(self) -> u64 {
        self.stop.write(1).unwrap();
        self.thread.join().unwrap()
    }
}

fn request() -> Vec<u8> {
    protocol::line(&Envelope {
        version: VERSION,
        request: Request::Status,
    })
    .unwrap()
}

#[track_caller]
fn answer(stream: &UnixStream) -> String {
    let mut line = String::new();
    // A client with unread bytes sees a reset after the answer, or instead of it.
    let _reset = BufReader::new(stream).read_line(&mut line);
    line
}

#[test]
fn requests_are_answered_in_order() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.path()).unwrap();
    for expected in 1..=3 {
        assert_eq!(client.ask(Request::Rules).unwrap(), Answer::Was(expected));
    }
    assert_eq!(server.ask(), 4);
    assert_eq!(server.stop(), 4);
}

#[test]
fn requests_may_be_split_or_pipelined() {
    let server = TestServer::start();
    let mut stream = server.stream();
    for byte in request() {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(answer(&stream), "{\"was\":1}\n");
    stream.write_all(&request().repeat(3)).unwrap();
    let mut lines = BufReader::new(&stream).lines();
    for expected in 2..=4 {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("{{\"was\":{expected}}}"));
    }
    server.stop();
}

#[test]
fn malformed_request_is_refused_and_disconnected() {
    let server = TestServer::start();
    for garbage in [
        &b"\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"{\"version\":7}\n",
        b"\xff\0\n",
    ] {
        let mut stream = server.stream();
        stream.write_all(garbage).unwrap();
        let answer = answer(&stream);
        assert!(answer.contains("unanswered"), "{answer}");
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    assert_eq!(server.ask(), 1);
}

#[test]
fn oversized_request_is_refused() {
    let server = TestServer::start();
    let mut stream = server.stream();
    let part = vec![b' '; 1 << 20];
    // The server lets go while this is being sent.
    let sent = (0..64).map_while(|_| stream.write_all(&part).ok()).count();
    assert!(sent < 64, "{sent} MiB were taken");
    assert_eq!(server.ask(), 1);
    server.stop();
}

#[test]
fn thousands_of_idle_connections_block_nobody() {
    let server = TestServer::start();
    let mut idle = Vec::new();
    for round in 1..=20 {
        for _ in 0..100 {
            let mut stream = server.stream();
            // Half a request, or nothing, from clients that are still connected.
            let _gone = stream.write_all(&request()[..round]);
            idle.push(stream);
            if idle.len() > 200 {
                idle.remove(0);
            }
        }
        assert_eq!(server.ask(), u64::try_from(round).unwrap());
    }
    assert_eq!(server.stop(), 20);
}

#[test]
fn client_that_reads_no_answer_blocks_nobody() {
    let server = TestServer::start();
    let mut slow = server.stream();
    slow.set_nonblocking(true).unwrap();
    let many = request().repeat(1000);
    while slow.write(&many).is_ok() {}
    assert!(server.ask() > 0);
    server.stop();
}

#[test]
fn listen_requires_a_private_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let refusal = |path: &Path| format!("{:#}", Server::listen(path, None).unwrap_err());

    std::fs::create_dir(path("open")).unwrap();
    std::fs::set_permissions(path("open"), Permissions::from_mode(0o777)).unwrap();
    assert!(refusal(&path("open/control")).contains("other users"));
    assert!(refusal(Path::new("control")).contains("absolute path"));

    std::fs::write(path("file"), "").unwrap();
    assert!(refusal(&path("file")).contains("not a socket"));
    symlink(path("file"), path("link")).unwrap();
    assert!(refusal(&path("link")).contains("not a socket"));
    assert!(path("file").exists());

    let server = Server::listen(&path("private/control"), None).unwrap();
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("private"), mode("private/control")), (0o700, 0o600));
    assert!(refusal(&path("private/control")).contains("another daemon"));
    drop(server);
    assert!(!path("private/control").exists());
    // The stale socket of a killed daemon is replaced.
    drop(UnixListener::bind(path("private/control")).unwrap());
    drop(Server::listen(&path("private/control"), None).unwrap());
}
