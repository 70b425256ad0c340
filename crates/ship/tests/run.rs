//! `tollgate-ship run` as a user runs it, with JSON lines to programs of this machine, syslog to rsyslog, records to
//! `auditd`, OTLP to a collector, JSON lines to brokers of Kafka, and Parquet files; and `tollgate-collect run`.

#[cfg(test)]
mod auditd;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod collect;
#[cfg(test)]
mod kafka;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod otlp;
#[cfg(test)]
mod parquet;
#[cfg(test)]
mod place;
#[cfg(test)]
mod rsyslog;
#[cfg(test)]
mod syslog;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Stdio;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use super::place::{FIRST, Place, event, has_all, received, wait_until};

    const STDOUT: &str = "[json.out]\nto = \"stdout\"\nstart = \"begin\"\n";
    const UNIX: &str = "[json.unix]\nto = \"unix:DIR/socket\"\nstart = \"begin\"\nresend = 1\n";

    #[test]
    fn events_gaps_and_heartbeats_have_host_boot_and_serial() {
        let place = Place::new(STDOUT);
        place.append(&(event(FIRST) + &event(FIRST + 4) + "no record\n"));
        place.append(
            "type=DAEMON_ERR msg=audit(1700000000.000:7): op=lost-events lost=3 reason=\"ring-full\" res=failed\n",
        );
        let output = place.once();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let kinds: Vec<&str> = lines
            .iter()
            .map(|line| line["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            ["heartbeat", "event", "gap", "event", "event", "heartbeat"]
        );
        for line in &lines {
            assert_eq!(
                (&line["host"], &line["boot"]),
                (&json!("h"), &json!(boot.trim_end()))
            );
        }
        assert_eq!(lines[1]["serial"], FIRST);
        assert_eq!(lines[1]["argv"], json!(["id"]));
        let gap = &lines[2];
        assert_eq!(
            (
                &gap["reason"],
                &gap["after"],
                &gap["before"],
                &gap["missing"]
            ),
            (
                &json!("absent"),
                &json!(FIRST),
                &json!(FIRST + 4),
                &json!(3)
            )
        );
        let last = &lines[5];
        assert_eq!(
            (&last["serial"], &last["kernel_serial"]),
            (&json!(FIRST + 4), &json!(7))
        );
        assert_eq!(
            (&last["events"], &last["sent"], &last["malformed"]),
            (&json!(3), &json!(3), &json!(1))
        );
        assert_eq!((&last["gaps"], &last["missing"]), (&json!(1), &json!(3)));
        assert_eq!(last["lost"], json!({"events: ring-full": 3}));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains("out: log/audit.log:11: ") || errors.contains("audit.log:11: "),
            "{errors}"
        );
        // The next run continues behind it.
        place.append_events(5, 1);
        let text = String::from_utf8(place.once().stdout).unwrap();
        assert_eq!(received(&text).0.into_keys().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn each_destination_has_its_filter_and_a_dead_one_slows_no_other() {
        let place = Place::new(
            "[json.out]\nto = \"stdout\"\nstart = \"begin\"\nfilter = \"key=rare\"\n\
             [json.dead]\nto = \"unix:DIR/absent\"\n",
        );
        place.append_events(0, 2000);
        let run = place.start();
        wait_until("filtered events", || {
            received(&place.text("stdout")).0.len() == 200
        });
        // What comes now is sent soon, in spite of the others.
        let begun = Instant::now();
        place.append_events(2000, 20);
        wait_until("new events", || {
            received(&place.text("stdout")).0.len() == 202
        });
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        wait_until("status", || {
            let output = place.status(&["--json"]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            let states = found["destinations"].as_array().unwrap().iter();
            let states: Vec<&str> = states.map(|to| to["state"].as_str().unwrap()).collect();
            states == ["waiting", "connected"]
        });
        let output = place.status(&[]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("error       cannot connect to socket `"),
            "{text}"
        );
        assert!(run.end());
        let found: Value = serde_json::from_slice(&place.status(&["--json"]).stdout).unwrap();
        assert_eq!(found["alive"], false);
        let out = &found["destinations"][1];
        assert_eq!(
            (&out["counts"]["events"], &out["counts"]["sent"]),
            (&json!(2020), &json!(202))
        );
        assert_eq!(
            (&out["behind_bytes"], &out["unconfirmed"]),
            (&json!(0), &json!(0))
        );
    }

    #[test]
    fn destination_that_is_away_holds_no_files() {
        let place = Place::new(UNIX);
        place.append_events(0, 10);
        let run = place.start();
        wait_until("a failure", || {
            place.text("stderr").contains("cannot connect")
        });
        let descriptors = format!("/proc/{}/fd", run.0.id());
        let open = || {
            let entries = fs::read_dir(&descriptors).unwrap();
            let links = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            links
                .filter(|link| link.starts_with(place.path("log")))
                .count()
        };
        assert_eq!(open(), 0);
        let _listener = UnixListener::bind(place.path("socket")).unwrap();
        wait_until("the log to be opened", || open() == 1);
    }

    #[test]
    fn first_run_begins_at_the_end_unless_it_shall_not() {
        let place = Place::new("[json.out]\nto = \"stdout\"\n");
        place.append_events(0, 10);
        let run = place.start();
        wait_until("heartbeat", || place.text("stdout").contains("heartbeat"));
        // Killed before its first event.
        run.kill();
        place.append_events(10, 10);
        let text = String::from_utf8(place.once().stdout).unwrap();
        assert!(received(&text).0.into_keys().eq(10..20), "{text}");
    }

    #[test]
    fn first_run_begins_before_its_destination_is_there() {
        let place = Place::new("[json.unix]\nto = \"unix:DIR/socket\"\n");
        place.append_events(0, 10);
        let _run = place.start();
        let position = place.path("state/unix.position");
        wait_until("a position", || position.exists());
        place.append_events(10, 10);
        let listener = UnixListener::bind(place.path("socket")).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let text = Mutex::new(String::new());
        // A heartbeat, and the events.
        read_some(&stream, 11, &text);
        let text = text.into_inner().unwrap();
        assert!(received(&text).0.into_keys().eq(10..20), "{text}");
    }

    #[test]
    fn what_rotates_away_is_told_by_serials() {
        let place = Place::new(UNIX);
        place.append_events(0, 100);
        let listener = UnixListener::bind(place.path("socket")).unwrap();
        let run = place.start();
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let mut text = String::new();
        wait_until("first events", || {
            let mut buffer = vec![0; 1 << 16];
            let count = stream.read(&mut buffer).unwrap();
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            received(&text).0.len() == 100
        });
        assert!({
            // The peer takes the rest and closes.
            let end = thread::spawn(move || stream.read_to_string(&mut String::new()));
            let is_ended = run.end();
            end.join().unwrap().unwrap();
            is_ended
        });
        // Nobody listens while the log is rotated away.
        place.append_events(100, 50);
        place.rotate(1);
        place.append_events(150, 50);
        place.rotate(1);
        place.append_events(200, 50);
        place.rotate(1);
        place.append_events(250, 50);
        fs::remove_file(place.path("socket")).unwrap();
        let listener = UnixListener::bind(place.path("socket")).unwrap();
        let run = place.start();
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        wait_until("later events", || {
            let mut buffer = vec![0; 1 << 16];
            let count = stream.read(&mut buffer).unwrap();
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            received(&text).0.contains_key(&299)
        });
        let (events, gaps) = received(&text);
        assert!(events.into_keys().eq(200..300));
        let [gap] = &gaps[..] else { panic!("{gaps:?}") };
        assert_eq!(
            (
                &gap["reason"],
                &gap["after"],
                &gap["before"],
                &gap["missing"]
            ),
            (
                &json!("rotated"),
                &json!(FIRST + 99),
                &json!(FIRST + 200),
                &json!(100)
            )
        );
        drop(run);
        assert!(
            place
                .text("stderr")
                .contains("unix: the log no longer has the position")
        );
    }

    #[test]
    fn what_rotates_away_from_a_slow_destination_is_told_by_serials_of_the_kernel() {
        let place = Place::new(UNIX);
        let append = |serials: std::ops::Range<u32>| {
            place.append(&serials.map(event).collect::<String>());
        };
        // More than what is on its way.
        append(0..3000);
        let listener = UnixListener::bind(place.path("socket")).unwrap();
        let _run = place.start();
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 5000];
        stream.read_exact(&mut bytes).unwrap();
        for from in [3000, 3010, 3020] {
            place.rotate(1);
            append(from..from + 10);
        }
        wait_until("the last event", || {
            let mut buffer = vec![0; 1 << 16];
            let count = stream.read(&mut buffer).unwrap();
            bytes.extend_from_slice(&buffer[..count]);
            let last = bytes.len().saturating_sub(20_000);
            String::from_utf8_lossy(&bytes[last..]).contains("\"serial\":3029,")
        });
        let text = String::from_utf8(bytes).unwrap();
        let gaps: Vec<Value> = text
            .lines()
            .filter(|line| line.contains("\"kind\":\"gap\""))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [gap] = &gaps[..] else { panic!("{gaps:?}") };
        assert_eq!(
            (&gap["reason"], &gap["after"], &gap["before"]),
            (&json!("rotated"), &json!(2999), &json!(3010))
        );
        assert!(!text.contains("\"serial\":3005,"));
        assert!(
            place
                .text("stderr")
                .contains("unix: the log was rotated faster than it was sent")
        );
    }

    /// As on a full disk.
    #[test]
    fn state_that_cannot_be_written_is_told_once_and_stops_nothing() {
        let place = Place::new(STDOUT);
        let names = ["boots", "status", "out.position"];
        let blocked = names.map(|name| place.path(&format!("state/{name}.new")));
        blocked
            .iter()
            .for_each(|path| fs::create_dir(path).unwrap());
        let run = place.start();
        for part in 0..4 {
            place.append_events(part * 10, 10);
            let count = usize::try_from(part + 1).unwrap() * 10;
            wait_until("events", || {
                received(&place.text("stdout")).0.len() == count
            });
            thread::park_timeout(Duration::from_millis(600));
        }
        let errors = place.text("stderr");
        for name in ["boots", "out.position"] {
            let error = format!("cannot write `state/{name}`");
            assert_eq!(errors.matches(&error).count(), 1, "{name}: {errors}");
        }
        blocked
            .iter()
            .for_each(|path| fs::remove_dir(path).unwrap());
        wait_until("the state", || {
            names
                .iter()
                .all(|name| place.path("state").join(name).exists())
        });
        assert!(run.end());
    }

    /// What a peer that is killed again and again has read.
    fn read_some(stream: &UnixStream, most: u32, to: &Mutex<String>) {
        let mut reader = BufReader::new(stream);
        for _ in 0..most {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.ends_with('\n') {
                to.lock().unwrap().push_str(&line);
            }
        }
    }

    #[test]
    fn every_serial_arrives_over_kills_of_both_sides_and_rotations() {
        const COUNT: u32 = 6_000;
        let place = Place::new(UNIX);
        let got = Arc::new(Mutex::new(String::new()));
        {
            let (got, socket) = (Arc::clone(&got), place.path("socket"));
            thread::spawn(move || {
                for number in 0.. {
                    let listener = UnixListener::bind(&socket).unwrap();
                    let (stream, _) = listener.accept().unwrap();
                    drop(listener);
                    fs::remove_file(&socket).unwrap();
                    // Slow, then killed, then neither.
                    let lines = if number < 4 { 500 } else { u32::MAX };
                    thread::park_timeout(Duration::from_millis(200));
                    read_some(&stream, lines, &got);
                }
            });
        }
        let mut run = place.start();
        for batch in 0..20 {
            place.append_events(batch * COUNT / 20, COUNT / 20);
            if batch % 4 == 3 {
                place.rotate(10);
            }
            thread::park_timeout(Duration::from_millis(100));
            if batch % 2 == 1 {
                run.kill();
                run = place.start();
            }
        }
        wait_until("the last event", || {
            thread::park_timeout(Duration::from_millis(200));
            let last = format!("\"serial\":{},", FIRST + COUNT - 1);
            got.lock().unwrap().contains(&last)
        });
        let (events, gaps) = received(&got.lock().unwrap());
        let missing: Vec<u32> = (0..COUNT)
            .filter(|number| !events.contains_key(number))
            .collect();
        assert_eq!(missing, [0; 0], "{}", place.text("stderr"));
        assert_eq!(gaps, [Value::Null; 0]);
        drop(run);
    }

    #[test]
    fn closed_standard_output_ends_the_run() {
        let place = Place::new(STDOUT);
        place.append_events(0, 5000);
        let mut child = place
            .command(&[])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains("out: the standard output was closed"),
            "{errors}"
        );
        let status = String::from_utf8(place.status(&[]).stdout).unwrap();
        assert!(
            status.contains("error       the standard output was closed"),
            "{status}"
        );
        let text = String::from_utf8(place.once().stdout).unwrap();
        assert!(has_all(&text, 5000));
    }

    #[test]
    fn mistakes_are_told() {
        let place = Place::new("[json.out]\nto = \"stdout\"\nfilter = \"exee=a\"\nresend = -1\n");
        let output = place.once();
        assert_eq!(output.status.code(), Some(2));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains(
                "tollgate-ship: ship.toml:5:11: unknown field `exee`; did you mean `exe`?\n"
            ),
            "{errors}"
        );
        assert!(
            errors.contains("tollgate-ship: ship.toml:6:10: `resend` is out of range; "),
            "{errors}"
        );
        place.configure(STDOUT);
        let run = place.start();
        wait_until("state", || place.status(&[]).status.code() != Some(2));
        let output = place.once();
        assert_eq!(output.status.code(), Some(2));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains("another program uses state directory `state`"),
            "{errors}"
        );
        run.kill();
    }

    #[test]
    fn damaged_position_begins_with_the_oldest_event() {
        let place = Place::new("[json.out]\nto = \"stdout\"\n");
        place.append_events(0, 10);
        for damaged in ["{}", "", "{\"version\":9}", "\u{0}"] {
            fs::write(place.path("state/out.position"), damaged).unwrap();
            let output = place.once();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(
                errors.contains("`state/out.position` is damaged: "),
                "{errors}"
            );
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(received(&text).0.into_keys().eq(0..10), "{text}");
        }
    }
}
