//! Whether what `tollgate-ship` sends is complete: serials of tollgate are dense in a boot. After a connection was lost some
//! come again: they are known. A serial that is not known, and not the one after a known one, is a gap.
//!
//! Serials of the kernel may come in another order: of them only what the shipper tells is known.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use audit::ids::Serial;
use serde::{Deserialize, Serialize};

use super::serial_ranges::SerialRanges;
use super::shipped::RecordNumber;

/// Boots of a host that are remembered.
const MAX_BOOTS: usize = 8;
/// Most reasons of losses that a host may ever tell, and their most characters: a shipper is not trusted, and each reason is
/// a series of the metrics. Losses of further ones are summed.
const MAX_REASONS: usize = 32;
const MAX_REASON_CHARS: usize = 128;
const OTHER_REASONS: &str = "others";

/// What is known of a host. It is kept over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Completeness {
    /// The last one is that of the last record.
    boots: Vec<Boot>,
    /// Jumps of serials that the shipper has not told, and is not known to make by a filter.
    pub(super) gaps: Gaps,
    /// Those since the last heartbeat, which tells whether there is a filter.
    new_gaps: Gaps,
    /// What the shipper has told last.
    pub(super) heartbeat: Option<Heartbeat>,
    /// Whether a filter has left out events between the last two heartbeats.
    #[serde(default)]
    is_filtered: bool,
    /// It has, and no new event has come since: the next one may be behind those.
    #[serde(default)]
    may_skip: bool,
    /// Reasons of losses that it has told.
    #[serde(default)]
    reasons: BTreeSet<String>,
}

/// How far a boot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Boot {
    id: String,
    /// Serial of tollgate of the last new event, with the number of its last record, and of all its records.
    serial: u32,
    n: u32,
    of: u32,
    #[serde(default)]
    known: SerialRanges,
}

/// Jumps of serials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gaps {
    pub(super) count: u64,
    /// Serials in them.
    pub(super) missing: u64,
    pub(super) last: Option<LastGap>,
}

/// A jump of serials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastGap {
    pub(super) boot: String,
    /// Last serial before the gap.
    pub(super) after: u32,
    /// First serial after the gap.
    pub(super) before: u32,
}

/// What a shipper tells of its log and of itself, since its state began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Heartbeat {
    /// When it came, in milliseconds since the epoch.
    pub(super) received_ms: u64,
    /// Events that were read, and those that its filter has accepted.
    pub(super) events: u64,
    pub(super) sent: u64,
    /// Gaps that it has found, and serials in them.
    pub(super) gaps: u64,
    pub(super) missing: u64,
    /// Losses that the log tells, by reason.
    pub(super) lost: BTreeMap<String, u64>,
}

/// A gap that a shipper tells.
#[derive(Clone, Copy, Debug, Deserialize)]
struct ToldGap {
    before: u32,
}

impl Completeness {
    /// Takes a new record of a boot.
    pub(super) fn record(&mut self, boot: &str, number: RecordNumber) {
        let serial = number.serial;
        if !Serial(serial).is_tollgates() {
            return;
        }
        let Some(known) = self.boot(boot) else {
            return self.add_boot(boot, number);
        };
        // A daemon whose state was removed begins anew.
        if serial == Serial::FIRST.0 && known.serial != serial {
            known.known = SerialRanges::default();
        }
        if !known.is_new(number) {
            return;
        }
        let is_cut = serial > known.serial && known.n < known.of;
        let below = known.known.last_below(serial);
        let skipped = below.map_or(0, |below| serial - below - 1);
        let after = match is_cut {
            true => known.serial - 1,
            false => serial - skipped - 1,
        };
        known.set(number);
        let may_skip = mem::take(&mut self.may_skip);
        let missing = if may_skip { 0 } else { skipped } + u32::from(is_cut);
        if missing > 0 {
            self.new_gaps.count += 1;
            self.new_gaps.missing += u64::from(missing);
            self.new_gaps.last = Some(LastGap {
                boot: boot.to_owned(),
                after,
                before: serial,
            });
        }
    }

    /// Forgets which serials came: more have since. The next one of each boot is behind no gap.
    pub(super) fn forget_serials(&mut self) {
        for boot in &mut self.boots {
            boot.known = SerialRanges::default();
            boot.n = boot.of;
        }
    }

    /// Takes a record that is in the log already: gaps before it were counted.
    pub(super) fn repeated(&mut self, boot: &str, number: RecordNumber) {
        if let Some(known) = self.boot(boot)
            && Serial(number.serial).is_tollgates()
            && known.is_new(number)
        {
            known.set(number);
        }
    }

    /// Takes a gap that the shipper tells, in JSON: it is not counted as one of the network. What is no JSON is passed over.
    pub(super) fn gap(&mut self, boot: &str, json: &[u8]) {
        let Ok(gap) = serde_json::from_slice::<ToldGap>(json) else {
            return;
        };
        let known = self.boot(boot);
        let known = known.filter(|known| known.serial < gap.before && known.n == known.of);
        if let Some(known) = known {
            // Those before it are not known: a gap that somebody else has told hides no later one.
            known.set(RecordNumber {
                serial: gap.before - 1,
                n: 1,
                of: 1,
            });
        }
    }

    /// Takes a heartbeat, in JSON. What is no JSON is passed over.
    pub(super) fn heartbeat(&mut self, json: &[u8], now_ms: u64) {
        let Ok(mut heartbeat) = serde_json::from_slice::<Heartbeat>(json) else {
            return;
        };
        heartbeat.received_ms = now_ms;
        for (reason, count) in mem::take(&mut heartbeat.lost) {
            let lost = heartbeat.lost.entry(self.reason(&reason)).or_default();
            *lost = lost.saturating_add(count);
        }
        self.is_filtered = heartbeat.is_filtered_since(self.heartbeat.as_ref());
        self.may_skip |= self.is_filtered;
        self.heartbeat = Some(heartbeat);
        let new = mem::take(&mut self.new_gaps);
        if !self.is_filtered && new.count > 0 {
            self.gaps.count += new.count;
            self.gaps.missing += new.missing;
            self.gaps.last = new.last;
        }
    }

    /// The reason under which losses are shown: one of a few, of printable characters.
    fn reason(&mut self, told: &str) -> String {
        let is_shown = |letter: char| letter.is_ascii_graphic() || letter == ' ';
        let letters = told.chars().take(MAX_REASON_CHARS);
        let reason: String = letters
            .map(|letter| if is_shown(letter) { letter } else { '_' })
            .collect();
        if !self.reasons.contains(&reason) {
            if self.reasons.len() >= MAX_REASONS {
                return OTHER_REASONS.to_owned();
            }
            self.reasons.insert(reason.clone());
        }
        reason
    }

    /// Whether a filter of the shipper has left out events between its last two heartbeats: then its serials jump.
    pub(super) const fn is_filtered(&self) -> bool {
        self.is_filtered
    }

    /// The boot and serial of tollgate of the last record.
    pub(super) fn last(&self) -> Option<(&str, u32)> {
        self.boots
            .last()
            .map(|boot| (boot.id.as_str(), boot.serial))
    }

    fn boot(&mut self, id: &str) -> Option<&mut Boot> {
        self.boots.iter_mut().find(|known| known.id == id)
    }

    fn add_boot(&mut self, boot: &str, number: RecordNumber) {
        if self.boots.len() >= MAX_BOOTS {
            self.boots.remove(0);
        }
        let mut known = SerialRanges::default();
        known.add(number.serial);
        self.boots.push(Boot {
            id: boot.to_owned(),
            serial: number.serial,
            n: number.n,
            of: number.of,
            known,
        });
    }
}

impl Heartbeat {
    /// Whether events were left out since the heartbeat before, or since the state of the shipper began, if it began anew.
    fn is_filtered_since(&self, before: Option<&Self>) -> bool {
        let before = before.filter(|it| it.events <= self.events && it.sent <= self.sent);
        let (events, sent) = before.map_or((0, 0), |before| (before.events, before.sent));
        self.sent - sent < self.events - events
    }
}

impl Boot {
    /// Whether a record is of an event that is not known; else it only counts as one of the last event.
    fn is_new(&mut self, number: RecordNumber) -> bool {
        if number.serial == self.serial {
            (self.n, self.of) = (number.n, number.of);
        }
        !self.known.contains(number.serial)
    }

    fn set(&mut self, number: RecordNumber) {
        (self.serial, self.n, self.of) = (number.serial, number.n, number.of);
        self.known.add(number.serial);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    /// Lowest serial of tollgate.
    const TOLLGATES: u32 = 0x8000_0000;
    /// Of a shipper without a filter.
    const WHOLE: &[u8] = b"{\"events\":9,\"sent\":9}";

    fn take(known: &mut Completeness, boot: &str, serial: u32, n: u32) {
        let number = RecordNumber {
            serial: TOLLGATES + serial,
            n,
            of: 2,
        };
        known.record(boot, number);
    }

    fn take_events(known: &mut Completeness, boot: &str, serials: RangeInclusive<u32>) {
        for serial in serials {
            take(known, boot, serial, 1);
            take(known, boot, serial, 2);
        }
    }

    #[test]
    fn what_comes_again_is_no_gap() {
        let mut known = Completeness::default();
        take_events(&mut known, "a", 5..=8);
        take_events(&mut known, "b", 1..=2);
        take(&mut known, "b", 3, 1);
        // The connection is lost here, and what was not confirmed comes again.
        take_events(&mut known, "a", 7..=8);
        let number = RecordNumber {
            serial: TOLLGATES + 2,
            n: 2,
            of: 2,
        };
        known.repeated("b", number);
        take_events(&mut known, "b", 3..=9);
        known.heartbeat(WHOLE, 0);
        assert_eq!(known.gaps, Gaps::default());
        assert_eq!(known.last(), Some(("b", TOLLGATES + 9)));
        // Those of the kernel have no order.
        for serial in [7, 3] {
            let number = RecordNumber {
                serial,
                n: 1,
                of: 1,
            };
            known.record("b", number);
        }
        known.heartbeat(WHOLE, 0);
        assert_eq!(known.gaps, Gaps::default());
        // One that somebody else has sent is a gap, and hides no later one.
        take_events(&mut known, "b", 1000..=1000);
        take_events(&mut known, "b", 10..=10);
        take_events(&mut known, "b", 12..=12);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (2, 991));
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<Completeness>(&text).unwrap(), known);
    }

    /// Events of older versions of the shipper come in the order in which they end.
    #[test]
    fn what_comes_late_makes_no_gap_of_what_is_known() {
        let mut known = Completeness::default();
        take_events(&mut known, "a", 5..=7);
        take_events(&mut known, "a", 9..=11);
        take_events(&mut known, "a", 8..=8);
        take_events(&mut known, "a", 12..=14);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (1, 1));
        // All of them again, on another connection, with a gap that was counted.
        take_events(&mut known, "a", 20..=21);
        take_events(&mut known, "a", 6..=14);
        take_events(&mut known, "a", 20..=22);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (2, 6));
        // The state of the daemon was removed.
        take_events(&mut known, "a", 1..=2);
        take_events(&mut known, "a", 4..=4);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (3, 7));
        let told = format!("{{\"before\":{}}}", TOLLGATES + 1000);
        known.gap("a", told.as_bytes());
        take_events(&mut known, "a", 5..=5);
        take_events(&mut known, "a", 7..=7);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (4, 8));
    }

    #[test]
    fn jumps_are_gaps_unless_they_are_told_or_filtered() {
        let mut known = Completeness::default();
        take_events(&mut known, "a", 1..=2);
        take_events(&mut known, "a", 5..=5);
        assert_eq!(known.gaps, Gaps::default());
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (1, 2));
        let gap = known.gaps.last.clone().unwrap();
        assert_eq!((gap.after - TOLLGATES, gap.before - TOLLGATES), (2, 5));
        // Of the next event the second record is missing.
        take(&mut known, "a", 6, 1);
        take_events(&mut known, "a", 7..=7);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (2, 3));
        let told = format!(
            "{{\"reason\":\"rotated\",\"after\":1,\"before\":{}}}",
            TOLLGATES + 20
        );
        known.gap("a", told.as_bytes());
        take_events(&mut known, "a", 20..=21);
        known.heartbeat(WHOLE, 0);
        assert_eq!((known.gaps.count, known.gaps.missing), (2, 3));
        take_events(&mut known, "a", 30..=30);
        known.heartbeat(
            b"{\"events\":9,\"sent\":5,\"lost\":{\"events: ring-full\":3}}",
            7,
        );
        assert!(known.is_filtered());
        assert_eq!((known.gaps.count, known.gaps.missing), (2, 3));
        known.heartbeat(b"no JSON", 8);
        assert_eq!(known.heartbeat.unwrap().received_ms, 7);
    }

    #[test]
    fn only_gaps_near_filtered_events_are_not_known() {
        let mut known = Completeness::default();
        let heartbeat = |known: &mut Completeness, events: u64, sent: u64| {
            let text = format!("{{\"events\":{events},\"sent\":{sent}}}");
            known.heartbeat(text.as_bytes(), 0);
            (known.is_filtered(), known.gaps.missing)
        };
        take_events(&mut known, "a", 1..=4);
        assert_eq!(heartbeat(&mut known, 4, 4), (false, 0));
        take_events(&mut known, "a", 6..=6);
        assert_eq!(heartbeat(&mut known, 7, 5), (true, 0));
        // 7 was left out before the heartbeat, which came before 8; 9 is missing.
        take_events(&mut known, "a", 8..=8);
        take_events(&mut known, "a", 10..=10);
        assert_eq!(heartbeat(&mut known, 10, 8), (false, 1));
        // The state of the shipper was removed.
        take_events(&mut known, "a", 12..=12);
        assert_eq!(heartbeat(&mut known, 2, 2), (false, 2));
        take_events(&mut known, "a", 14..=14);
        assert_eq!(heartbeat(&mut known, 1, 0), (true, 2));
    }

    #[test]
    fn memory_is_bounded() {
        let mut known = Completeness::default();
        for boot in 0..100 {
            take_events(&mut known, &boot.to_string(), 1..=1);
        }
        assert_eq!(known.boots.len(), MAX_BOOTS);
        let heartbeat = |known: &mut Completeness, first: u64| {
            let name = |n: u64| format!("{n}\u{1}").repeat(200);
            let lost: BTreeMap<String, u64> = (first..first + 20).map(|n| (name(n), n)).collect();
            let json = serde_json::to_vec(&serde_json::json!({ "lost": lost })).unwrap();
            known.heartbeat(&json, 0);
            known.heartbeat.clone().unwrap().lost
        };
        let mut reasons = BTreeSet::new();
        for first in [0, 20, 40, 60] {
            let lost = heartbeat(&mut known, first);
            assert_eq!(lost.values().sum::<u64>(), (first..first + 20).sum::<u64>());
            reasons.extend(lost.into_keys());
        }
        assert_eq!(reasons.len(), MAX_REASONS + 1, "{reasons:?}");
        assert!(reasons.contains(OTHER_REASONS));
        for reason in reasons {
            assert!(reason.len() <= MAX_REASON_CHARS && !reason.contains('\u{1}'));
        }
    }
}
