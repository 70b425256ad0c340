//! A log that `-e 2` has locked.

use super::*;

/// Another value for one key.
type Change = fn(&mut Settings);

#[test]
fn what_is_locked_keeps_its_logs_and_says_which_setting_does_not_change() {
    let locked = Settings {
        num_logs: 3,
        max_log_file_action: MaxLogFileAction::Rotate,
        ..settings()
    };
    let mut place = Place::new(locked.clone());
    let path = place.journal.lock().path;
    for _ in 0..4 {
        place.journal.append(EVENT, 1, &mut ());
        place.journal.rotate_now(SignalSender::this());
    }
    assert_eq!(place.names().len(), 5);
    let changes: [(&str, Change); 4] = [
        ("num_logs", |conf| conf.num_logs = 2),
        ("write_logs", |conf| conf.write_logs = false),
        ("max_log_file_action", |conf| {
            conf.max_log_file_action = MaxLogFileAction::Suspend;
        }),
        ("disk_full_action", |conf| {
            conf.disk_full_action = Action::Rotate;
        }),
    ];
    place.noted.taken();
    for (key, change) in changes {
        let mut other = locked.clone();
        change(&mut other);
        let keep = LogConfig::configured(other, Some(path.clone())).unwrap();
        assert!(!place.journal.configure(Some(keep), SignalSender::this()));
        let told = place.noted.taken();
        assert!(told[0].contains(&format!("`{key}` stays")), "{told:?}");
    }
    let elsewhere =
        LogConfig::configured(locked.clone(), Some(path.with_extension("other"))).unwrap();
    assert!(
        !place
            .journal
            .configure(Some(elsewhere), SignalSender::this())
    );
    // What says nothing of that may change, and removes no log.
    let enriched = Settings {
        log_format: LogFormat::Enriched,
        ..locked
    };
    let keep = LogConfig::configured(enriched, Some(path)).unwrap();
    assert!(place.journal.configure(Some(keep), SignalSender::this()));
    assert_eq!(place.names().len(), 5);
    let events = place.names();
    let events = events.iter().map(|name| place.events(name).len());
    assert_eq!(events.sum::<usize>(), 8, "an event is missing");
}
