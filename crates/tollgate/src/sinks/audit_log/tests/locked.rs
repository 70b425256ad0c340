//! A log locked by `-e 2`.

use super::*;

/// Changes the value of one key.
type Change = fn(&mut Settings);

#[test]
fn locked_log_keeps_old_logs_and_names_the_refused_setting() {
    let locked = Settings {
        num_logs: 3,
        max_log_file_action: MaxLogFileAction::Rotate,
        ..settings()
    };
    let mut test = TestLog::new(locked.clone());
    let path = test.log.lock().path;
    for _ in 0..4 {
        test.log.append(EVENT, 1, &mut ());
        test.log.rotate_on_signal(SignalSender::this());
    }
    assert_eq!(test.names().len(), 5);
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
    test.actions.take();
    for (key, change) in changes {
        let mut other = locked.clone();
        change(&mut other);
        let config = LogConfig::configured(other, Some(path.clone())).unwrap();
        assert!(!test.log.configure(Some(config), SignalSender::this()));
        let actions = test.actions.take();
        assert!(
            actions[0].contains(&format!("locked `{key}`")),
            "{actions:?}"
        );
    }
    let elsewhere =
        LogConfig::configured(locked.clone(), Some(path.with_extension("other"))).unwrap();
    assert!(!test.log.configure(Some(elsewhere), SignalSender::this()));
    // Other settings may change, and remove no log.
    let enriched = Settings {
        log_format: LogFormat::Enriched,
        ..locked
    };
    let config = LogConfig::configured(enriched, Some(path)).unwrap();
    assert!(test.log.configure(Some(config), SignalSender::this()));
    assert_eq!(test.names().len(), 5);
    let events = test.names();
    let events = events.iter().map(|name| test.events(name).len());
    assert_eq!(events.sum::<usize>(), 8, "an event is missing");
}
