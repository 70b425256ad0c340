//! How far a destination is: where its next run continues, the last serials, and what was counted.
//!
//! Serials of tollgate, in the upper half of their range, are dense and ascend in the log of a boot: a jump is a gap.
//! Serials of the kernel, in the lower half, may come in another order: a jump of them is a gap only after the position
//! in the log was lost.

use audit::ids::Serial;
use audit::record::assemble::EventRecords;
use logs::cursor::Cursor;
use serde::{Deserialize, Serialize};

use crate::boots::Boots;
use crate::frame::{Counts, Gap, Reason, Time};

/// Version of the file: another one cannot be read.
const VERSION: u32 = 1;
/// Most reasons of losses that are told apart: the text of a log is not trusted.
const MAX_REASONS: usize = 32;
/// Most characters of a reason, which a log may have from others.
const MAX_REASON_CHARS: usize = 128;

/// How far a destination is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    version: u32,
    /// Where the next run continues; `None` before the first event.
    #[serde(default)]
    cursor: Option<String>,
    /// Id of the boot of the last event.
    pub(crate) boot: String,
    /// Time of the last event.
    pub(crate) time: Time,
    tollgate: Sequence,
    kernel: Sequence,
    pub(crate) counts: Counts,
}

/// Serials of tollgate, or of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sequence {
    last: Option<u32>,
    time: Time,
    /// The position in the log was lost since the last serial.
    #[serde(default)]
    is_lost: bool,
}

impl Position {
    pub(crate) fn new() -> Self {
        Self {
            version: VERSION,
            ..Self::default()
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let position: Self = serde_json::from_str(text)?;
        anyhow::ensure!(
            position.version == VERSION,
            "it has version {}, and this program reads {VERSION}",
            position.version
        );
        position.cursor()?;
        Ok(position)
    }

    /// Text of the file.
    ///
    /// # Errors
    /// None is known.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Where the next run continues.
    ///
    /// # Errors
    /// The text of the file is no cursor.
    pub(crate) fn cursor(&self) -> anyhow::Result<Option<Cursor>> {
        Ok(self.cursor.as_deref().map(str::parse).transpose()?)
    }

    pub(crate) fn set_cursor(&mut self, cursor: Cursor) {
        self.cursor = Some(cursor.to_string());
    }

    /// Last serials of tollgate and of the kernel in the boot of the last event.
    pub(crate) const fn serials(&self) -> (Option<u32>, Option<u32>) {
        (self.tollgate.last, self.kernel.last)
    }

    /// The log no longer has the position: what comes next is after a gap.
    pub(crate) const fn lose(&mut self) {
        self.tollgate.is_lost = self.tollgate.last.is_some();
        self.kernel.is_lost = self.kernel.last.is_some();
    }

    /// Counts an event; returns the gap before it, if there is one.
    pub(crate) fn take(&mut self, event: &EventRecords, boots: &Boots) -> Option<Gap> {
        let time = Time::of(event.time());
        let boot = boots.at(time.ms);
        // An older event is from before the clock was set, not of the boot before.
        let is_new_boot = self.boot != boot && time >= self.time;
        if is_new_boot {
            boot.clone_into(&mut self.boot);
        }
        self.time = self.time.max(time);
        self.counts.events += 1;
        self.count_losses(event);
        let serial = event.serial();
        let is_tollgates = serial.is_tollgates();
        let sequence = match is_tollgates {
            true => &mut self.tollgate,
            false => &mut self.kernel,
        };
        let gap = sequence.take(serial, time, is_new_boot, is_tollgates);
        if is_new_boot {
            let other = match is_tollgates {
                true => &mut self.kernel,
                false => &mut self.tollgate,
            };
            // After a boot, a jump of the other sequence is none, but a position that was lost stays so.
            other.last = other.last.filter(|_| other.is_lost);
        }
        if let Some(gap) = &gap {
            self.counts.gaps += 1;
            self.counts.missing += gap.missing.unwrap_or(0);
        }
        gap
    }

    /// Adds the losses that a record of the daemon tells.
    fn count_losses(&mut self, event: &EventRecords) {
        // Most events tell none.
        if !event.text().starts_with(b"type=DAEMON_ERR ") && event.node().is_none() {
            return;
        }
        for record in event.records().filter(|record| record.kind == "DAEMON_ERR") {
            let text = |name: &str| {
                let field = record.field(name)?;
                let value = record.text(&field).ok()??;
                Some(String::from_utf8_lossy(&value).trim_matches('"').to_owned())
            };
            let Some(what) = text("op").and_then(|op| Some(op.strip_prefix("lost-")?.to_owned()))
            else {
                continue;
            };
            let count = text("lost").and_then(|lost| lost.parse().ok()).unwrap_or(1);
            let reason = text("reason").unwrap_or_default();
            let name = format!("{what}: {reason}");
            let mut name: String = name.chars().take(MAX_REASON_CHARS).collect();
            let lost = &mut self.counts.lost;
            if !lost.contains_key(&name) && lost.len() >= MAX_REASONS {
                "others".clone_into(&mut name);
            }
            let sum = lost.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

impl Sequence {
    /// Takes the next serial; returns the gap before it.
    fn take(
        &mut self,
        serial: Serial,
        time: Time,
        is_new_boot: bool,
        is_dense: bool,
    ) -> Option<Gap> {
        let before = *self;
        let last = before.last.filter(|_| !is_new_boot || before.is_lost);
        let Some(last) = last else {
            *self = Self {
                last: Some(serial.0),
                time,
                is_lost: false,
            };
            return None;
        };
        // Serials of a daemon whose state was removed begin anew.
        let is_anew = is_new_boot || serial.0 <= last && is_dense && time > before.time;
        if serial.0 <= last && !is_anew {
            return None;
        }
        *self = Self {
            last: Some(serial.0),
            time,
            is_lost: false,
        };
        let gap = |missing| Gap {
            reason: match before.is_lost {
                true => Reason::Rotated,
                false => Reason::Absent,
            },
            time,
            after: last,
            before: serial.0,
            missing,
        };
        if is_anew {
            return before.is_lost.then(|| gap(None));
        }
        let missing = u64::from(serial.0 - last - 1);
        let is_gap = missing > 0 && (is_dense || before.is_lost);
        is_gap.then(|| gap(Some(missing)))
    }
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;

    use super::*;

    fn event(text: &str) -> EventRecords {
        let mut assembler = EventAssembler::default();
        assembler.take(text.as_bytes(), 0).unwrap();
        assembler.end_all();
        assembler.next_ended().unwrap()
    }

    fn at(sec: u64, serial: u32) -> EventRecords {
        event(&format!(
            "type=CWD msg=audit({sec}.000:{serial}): cwd=\"/\""
        ))
    }

    const FIRST: u32 = Serial::FIRST.0;

    fn gap(found: Option<Gap>) -> Option<(Reason, u32, u32, Option<u64>)> {
        found.map(|gap| (gap.reason, gap.after, gap.before, gap.missing))
    }

    #[test]
    fn gaps_are_jumps_of_dense_serials_and_those_after_a_lost_position() {
        let boots = Boots::default();
        let mut position = Position::new();
        let mut take = |sec, serial| gap(position.take(&at(sec, serial), &boots));
        assert_eq!(take(1, FIRST + 5), None);
        assert_eq!(take(1, FIRST + 6), None);
        // Read again after a run that was killed.
        assert_eq!(take(1, FIRST + 5), None);
        assert_eq!(take(1, FIRST + 7), None);
        assert_eq!(
            take(2, FIRST + 10),
            Some((Reason::Absent, FIRST + 7, FIRST + 10, Some(2)))
        );
        // Of the kernel.
        assert_eq!(take(2, 100), None);
        assert_eq!(take(2, 110), None);
        assert_eq!(take(2, 105), None);
        position.lose();
        let mut take = |sec, serial| gap(position.take(&at(sec, serial), &boots));
        assert_eq!(
            take(3, FIRST + 15),
            Some((Reason::Rotated, FIRST + 10, FIRST + 15, Some(4)))
        );
        assert_eq!(take(3, 112), Some((Reason::Rotated, 110, 112, Some(1))));
        assert_eq!(take(3, 115), None);
        // A daemon whose state was removed begins anew.
        assert_eq!(take(4, FIRST), None);
        assert_eq!(take(4, FIRST + 1), None);
        assert_eq!((position.counts.gaps, position.counts.missing), (3, 7));
        assert_eq!(position.serials(), (Some(FIRST + 1), Some(115)));
    }

    /// Rules of the list `exclude` leave out PROCTITLE records, of all events or of some.
    #[test]
    fn events_without_proctitle_are_no_gaps() {
        let boots = Boots::default();
        let mut position = Position::new();
        let mut assembler = EventAssembler::default();
        let mut serials = Vec::new();
        for (number, kinds) in (0..).zip([
            &["SYSCALL", "CWD"][..],
            &["CONFIG_CHANGE"],
            &["SYSCALL"],
            &["SYSCALL", "PROCTITLE"],
            &["SYSCALL", "PATH"],
            &["SYSCALL"],
            &["DAEMON_ERR"],
        ]) {
            for kind in kinds {
                let line = format!("type={kind} msg=audit(5.000:{}): a=1", FIRST + number);
                assembler.take(line.as_bytes(), 0).unwrap();
                assembler.drain_ended(|event| {
                    assert_eq!(position.take(event, &boots), None);
                    serials.push(event.serial().0 - FIRST);
                });
            }
        }
        assert_eq!(serials, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn serials_of_another_boot_are_no_gap_unless_the_position_was_lost() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("sys/kernel/random")).unwrap();
        std::fs::write(place.path().join("sys/kernel/random/boot_id"), "b\n").unwrap();
        std::fs::write(place.path().join("stat"), "btime 100\n").unwrap();
        let boots = Boots::read("10000 a\n", place.path()).unwrap();
        let mut position = Position::new();
        for (sec, serial) in [(50, FIRST + 9), (51, 70), (100, 1), (101, FIRST), (102, 2)] {
            assert_eq!(position.take(&at(sec, serial), &boots), None, "{sec}");
        }
        assert_eq!(position.boot, "b");
        let mut position = Position::new();
        assert_eq!(position.take(&at(50, FIRST + 9), &boots), None);
        assert_eq!(position.boot, "a");
        position.lose();
        assert_eq!(position.take(&at(101, 4), &boots), None);
        assert_eq!(
            gap(position.take(&at(102, FIRST + 3), &boots)),
            Some((Reason::Rotated, FIRST + 9, FIRST + 3, None))
        );
        assert_eq!(gap(position.take(&at(103, FIRST + 4), &boots)), None);
    }

    #[test]
    fn losses_that_the_log_tells_are_counted_by_reason() {
        let mut position = Position::new();
        let boots = Boots::default();
        let lost = |sec: u64, body: &str| {
            event(&format!("type=DAEMON_ERR msg=audit({sec}.000:1): {body}"))
        };
        for (sec, body) in [
            (1, "op=lost-events lost=3 reason=\"ring-full\" res=failed"),
            (2, "op=lost-events lost=4 reason=\"ring-full\" res=failed"),
            (3, "op=lost-calls reason=\"another engine\" res=failed"),
            (4, "op=other lost=9 res=failed"),
        ] {
            position.take(&lost(sec, body), &boots);
        }
        let counts: Vec<(&str, u64)> = position
            .counts
            .lost
            .iter()
            .map(|(reason, count)| (reason.as_str(), *count))
            .collect();
        assert_eq!(
            counts,
            [("calls: another engine", 1), ("events: ring-full", 7)]
        );
        for number in 0..100 {
            position.take(
                &lost(9, &format!("op=lost-events lost=1 reason=\"{number}\"")),
                &boots,
            );
        }
        assert_eq!(position.counts.lost.len(), MAX_REASONS + 1);
        assert_eq!(position.counts.lost["others"], 70);
    }

    #[test]
    fn file_is_read_as_it_was_written() {
        let mut position = Position::new();
        position.set_cursor("1:2:3:4:5".parse().unwrap());
        position.take(&at(5, FIRST), &Boots::default());
        let text = position.text().unwrap();
        assert_eq!(Position::parse(&text).unwrap(), position);
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("1:2:3:4:5", "1:2"),
            ("{", ""),
        ] {
            Position::parse(&text.replace(from, to)).unwrap_err();
        }
    }
}
