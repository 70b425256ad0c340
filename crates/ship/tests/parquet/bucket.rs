//! Files that are put into a bucket, of a store that checks signatures and answers as a test wants.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

use super::super::place::{Place, wait_until};
use super::{files_below, place, received};

const SECRET: &str = "s3cr/et+key";
/// Of the key `ASIA`, which expires.
const TOKEN: &str = "FwoGZXIvYXdzE+/token==";

/// Decides about the next request: `None` takes it.
type Plan = Box<dyn FnMut() -> Option<&'static str> + Send>;

/// A store. What it takes is below a directory, so that names and bytes can be read from there.
struct Store {
    port: u16,
    plan: Arc<Mutex<Plan>>,
}

impl Store {
    fn new(objects: PathBuf, plan: impl FnMut() -> Option<&'static str> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan: Arc<Mutex<Plan>> = Arc::new(Mutex::new(Box::new(plan)));
        let shared = Arc::clone(&plan);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (plan, objects) = (Arc::clone(&shared), objects.clone());
                thread::spawn(move || serve(stream.unwrap(), &plan, &objects));
            }
        });
        Self { port, plan }
    }

    fn place(&self, place: &Place) {
        fs::create_dir(place.path("spool")).unwrap();
        fs::write(place.path("secret"), SECRET).unwrap();
        place.configure(&format!(
            "[parquet.lake]\ndirectory = \"DIR/spool\"\nstart = \"begin\"\nrows = 500\nseconds = 1\n\
             [parquet.lake.s3]\nurl = \"http://127.0.0.1:{}/bucket/audit/\"\naccess_key = \"AKID\"\n\
             region = \"eu-1\"\nsecret_file = \"DIR/secret\"\ntimeout = 5\n",
            self.port
        ));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes requests until the peer closes the connection.
fn serve(stream: TcpStream, plan: &Mutex<Plan>, objects: &Path) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut output = stream;
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let headers: BTreeMap<String, String> = lines[1..]
            .iter()
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                (name.to_ascii_lowercase(), value.to_owned())
            })
            .collect();
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        if input.read_exact(&mut body).is_err() {
            return;
        }
        check_signature(&lines[0], &headers, &body);
        let answer = match plan.lock().unwrap()() {
            Some("") => return, // as if it were killed
            Some(answer) => answer.to_owned(),
            None => {
                let target = lines[0].split(' ').nth(1).unwrap();
                let name = target.strip_prefix("/bucket/audit/").unwrap();
                let file = objects.join(name.replace("%3D", "="));
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                // Readers of the test see a whole file.
                fs::write(objects.join("incoming"), &body).unwrap();
                fs::rename(objects.join("incoming"), file).unwrap();
                "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
        };
        if output.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Makes the signature from what came.
fn check_signature(first: &str, headers: &BTreeMap<String, String>, body: &[u8]) {
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let payload = hex(digest(&SHA256, body).as_ref());
    assert_eq!(headers["x-amz-content-sha256"], payload);
    let mut names = vec!["host", "x-amz-content-sha256", "x-amz-date"];
    let token = "x-amz-security-token";
    names.extend(headers.contains_key(token).then_some(token));
    let signed: String = names
        .iter()
        .map(|name| format!("{name}:{}\n", headers[*name]))
        .collect();
    let names = names.join(";");
    let canonical = format!("{method}\n{target}\n\n{signed}\n{names}\n{payload}");
    let date = &headers["x-amz-date"];
    let (day, _) = date.split_once('T').unwrap();
    let scope = format!("{day}/eu-1/s3/aws4_request");
    let text = format!(
        "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
        hex(digest(&SHA256, canonical.as_bytes()).as_ref())
    );
    let sign = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes())
            .as_ref()
            .to_vec()
    };
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/') {
        key = sign(&key, part);
    }
    assert_eq!(
        headers["authorization"],
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={}",
            headers.get(token).map_or("AKID", |_| "ASIA"),
            hex(&sign(&key, &text))
        )
    );
    if let Some(found) = headers.get(token) {
        assert_eq!(found, TOKEN);
    }
}

/// Files that are not in the bucket yet.
fn spooled(place: &Place) -> Vec<PathBuf> {
    files_below(&place.path("spool"))
}

#[test]
fn every_event_is_in_the_bucket_over_kills_of_both_sides() {
    const COUNT: u32 = 6_000;
    let place = place("");
    let mut number = 0;
    let store = Store::new(place.path("out"), move || {
        number += 1;
        match number % 4 {
            1 => Some(""),
            2 => Some("HTTP/1.1 503 Slow Down\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
            _ => None,
        }
    });
    store.place(&place);
    for part in 0..4 {
        place.append_events(part * COUNT / 4, COUNT / 4);
        let run = place.start();
        let before = received(&place).0.len();
        wait_until("some events", || received(&place).0.len() > before);
        run.kill();
        place.rotate(4);
    }
    let run = place.start();
    let wanted = usize::try_from(COUNT).unwrap();
    wait_until("all events", || received(&place).0.len() == wanted);
    assert!(run.end());
    assert_eq!(received(&place).1, [], "gaps");
    assert_eq!(spooled(&place), Vec::<PathBuf>::new());
    let files = files_below(&place.path("out"));
    let name = files[0].strip_prefix(place.path("out")).unwrap();
    let name = name.to_str().unwrap();
    assert!(name.starts_with("date=20"), "{name}");
    assert!(name.contains("/host=h/lake-"), "{name}");
}

#[test]
fn refusal_is_told_and_nothing_is_confirmed() {
    let place = place("");
    let store = Store::new(place.path("out"), || {
        Some(
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 48\r\n\r\n<Error><Code>SignatureDoesNotMatch</Code></Error>",
        )
    });
    store.place(&place);
    place.append_events(0, 700);
    let run = place.start();
    wait_until("the error", || {
        place.error("lake").is_some_and(|error| {
            error.contains("answers 403: SignatureDoesNotMatch: look at `access_key`")
        })
    });
    let status = String::from_utf8(place.status(&[]).stdout).unwrap();
    assert!(
        status.contains("0 read and 0 sent, all confirmed"),
        "{status}"
    );
    assert!(!place.text("stderr").contains(SECRET));
    *store.plan.lock().unwrap() = Box::new(|| None);
    wait_until("all events", || received(&place).0.len() == 700);
    assert!(run.end());
    assert_eq!(place.confirmed(), 700);
}

/// The store checks the signature. The token comes later than the run begins, as with a key that is renewed.
#[test]
fn key_that_expires_is_read_from_files_with_its_session_token() {
    let place = place("");
    let store = Store::new(place.path("out"), || None);
    store.place(&place);
    let settings = place.text("ship.toml");
    let at = settings.find("[parquet.lake]").unwrap();
    let files = "access_key = { file = \"DIR/id\" }\nsession_token_file = \"DIR/token\"";
    let (_, settings) = settings.split_at(at);
    place.configure(&settings.replace("access_key = \"AKID\"", files));
    fs::write(place.path("id"), "ASIA\n").unwrap();
    place.append_events(0, 1);
    let run = place.start();
    wait_until("the error", || {
        let error = place.error("lake").unwrap_or_default();
        error.contains("the session token of the access key cannot be read")
    });
    fs::write(place.path("token"), TOKEN).unwrap();
    wait_until("all events", || received(&place).0.len() == 1);
    assert!(run.end());
    assert!(!place.text("stderr").contains(TOKEN));
}

#[test]
fn secret_must_be_there() {
    let place = place("");
    let store = Store::new(place.path("out"), || None);
    store.place(&place);
    fs::remove_file(place.path("secret")).unwrap();
    place.append_events(0, 1);
    let run = place.start();
    wait_until("the error", || {
        place
            .error("lake")
            .is_some_and(|error| error.contains("the secret of the access key cannot be read"))
    });
    fs::write(place.path("secret"), SECRET).unwrap();
    wait_until("all events", || received(&place).0.len() == 1);
    assert!(run.end());
}
