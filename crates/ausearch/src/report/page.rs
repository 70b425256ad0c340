//! The page: one file without scripts or external resources, light and dark, for wide and narrow screens.

use bstr::ByteSlice as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::gather::{Gather, Ranking};
use crate::local_time::Clock;

/// Keys with a colour of their own.
const COLOURS: usize = 6;
/// Rows of a table.
const ROWS: usize = 12;

/// Renders the page.
pub(super) fn render(gather: &mut Gather, clock: &Clock) -> String {
    let at = |seconds: u64| clock.date_time(seconds.cast_signed());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { "tollgate report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Audit log" }
                p.origin { (gather.sources.join(", ")) }
                @if gather.events == 0 {
                    p { "No events." }
                } @else {
                    p { (at(gather.first)) " to " (at(gather.last)) }
                    ul.numbers {
                        li { b { (gather.events) } " events" }
                        li { b { (gather.failed) } " failed" }
                        li { b { (gather.losses.iter().map(|loss| loss.events).sum::<u64>()) } " lost" }
                        li { b { (gather.blind.len()) } " blind times" }
                    }
                    (timeline(gather, clock))
                    (losses(gather, clock))
                    div.tables {
                        (table("Programs", &gather.programs))
                        (table("Login users", &gather.users))
                        (table("Files", &gather.files))
                        (table("Addresses", &gather.addresses))
                        (table("Failures", &gather.failures))
                    }
                }
            }
        }
    };
    page.into_string()
}

/// Events over time, by key.
fn timeline(gather: &Gather, clock: &Clock) -> Markup {
    const HEIGHT: f64 = 200.0;
    const WIDTH: f64 = 960.0;
    let mut keys: Vec<usize> = (0..gather.keys.len()).collect();
    keys.sort_by_key(|&key| std::cmp::Reverse(gather.by_key.get(key).copied().unwrap_or_default()));
    let shown: Vec<usize> = keys.iter().copied().take(COLOURS).collect();
    let others: u64 = keys
        .iter()
        .skip(COLOURS)
        .filter_map(|&key| gather.by_key.get(key))
        .sum();
    let Some((first, last)) = gather.timeline.range() else {
        return html! {};
    };
    let most = gather
        .timeline
        .spans
        .values()
        .map(|keys| keys.values().sum::<u64>())
        .max()
        .unwrap_or(1);
    let bar_width = WIDTH / number(last - first + 1);
    let mut bars = Vec::new();
    for (&span, counts) in &gather.timeline.spans {
        let left = number(span - first) * bar_width;
        let mut top = HEIGHT;
        for colour in 0..=COLOURS {
            let count: u64 = match shown.get(colour) {
                Some(key) => counts.get(key).copied().unwrap_or_default(),
                None => counts
                    .iter()
                    .filter(|(key, _)| !shown.contains(key))
                    .map(|(_, count)| count)
                    .sum(),
            };
            if count == 0 || (colour < COLOURS && shown.get(colour).is_none()) {
                continue;
            }
            let height = HEIGHT * number(count) / number(most);
            top -= height;
            bars.push(html! {
                rect class=(format!("k{colour}")) x=(format!("{left:.2}")) y=(format!("{top:.2}"))
                    width=(format!("{:.2}", (bar_width * 0.9).max(0.5))) height=(format!("{height:.2}")) {}
            });
        }
    }
    let at = |span: u64| clock.date_time((span * gather.timeline.span_seconds).cast_signed());
    html! {
        h2 { "Events over time by key" }
        svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" preserveAspectRatio="none"
            aria-label="Events over time by key" {
            @for bar in &bars { (bar) }
        }
        p.axis { span { (at(first)) } span { "at most " (most) " in " (duration(gather.timeline.span_seconds)) } span { (at(last + 1)) } }
        ul.legend {
            @for (colour, &key) in shown.iter().enumerate() {
                @if let (Some(name), Some(count)) = (gather.keys.get(key), gather.by_key.get(key)) {
                    @if *count > 0 {
                        li { i class=(format!("k{colour}")) {} code { (readable(name)) } " " (count) }
                    }
                }
            }
            @if others > 0 { li { i class=(format!("k{COLOURS}")) {} "other keys " (others) } }
        }
    }
}

/// A count as a length.
#[expect(clippy::cast_precision_loss, reason = "lengths on a screen")]
fn number(count: u64) -> f64 {
    count as f64
}

/// A length of time in the largest unit that is whole enough.
fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn losses(gather: &Gather, clock: &Clock) -> Markup {
    let at = |seconds: u64| clock.date_time(seconds.cast_signed());
    html! {
        @if !gather.losses.is_empty() {
            h2 { "Lost events" }
            table.wide {
                tr { th { "time" } th.count { "events" } th { "reason" } }
                @for loss in &gather.losses {
                    tr { td { (at(loss.seconds)) } td.count { (loss.events) } td { (readable(loss.reason.as_bytes())) } }
                }
            }
        }
        @if !gather.blind.is_empty() {
            h2 { "Times without a daemon" }
            table.wide {
                tr { th { "from" } th { "to" } th.count { "for" } }
                @for blind in &gather.blind {
                    tr {
                        td { (at(blind.from)) } td { (at(blind.to)) }
                        td.count {
                            @if blind.was_killed { "at most " }
                            (duration(blind.to.saturating_sub(blind.from)))
                        }
                    }
                }
            }
        }
    }
}

/// The most frequent texts, with a bar each.
fn table(title: &str, ranking: &Ranking) -> Markup {
    let (rows, others) = ranking.top(ROWS);
    let most = rows.first().map_or(1, |&(_, count)| count);
    html! {
        @if !rows.is_empty() {
            section {
                h2 { (title) }
                table {
                    @for (text, count) in rows {
                        tr {
                            td.text { (readable(text)) }
                            td.count { (count) }
                            td.bar { span style=(format!("width:{}%", (count * 100 / most).max(1))) {} }
                        }
                    }
                    @if others > 0 { tr.origin { td { "others" } td.count { (others) } td {} } }
                }
            }
        }
    }
}

/// A text that a task chose, without characters that are not visible or change the direction of the text.
fn readable(text: &[u8]) -> String {
    const MOST: usize = 300;
    let text = text.to_str_lossy();
    text.chars()
        .take(MOST)
        .map(|letter| {
            // `escape_debug` escapes what cannot be seen.
            let is_hidden = !letter.is_ascii() && letter.escape_debug().next() == Some('\\');
            if letter.is_control() || is_hidden {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --off: #777; --bar: #1a7f5a }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: 0 } h2 { margin: 2rem 0 .5rem; font-size: 1.1rem }
.origin { color: var(--off); margin-top: 0; overflow-wrap: anywhere }
.numbers, .legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.5rem }
.numbers b { font-size: 1.4rem; font-variant-numeric: tabular-nums }
.chart { width: 100%; height: 12rem; border-bottom: 1px solid var(--off) }
.axis { display: flex; flex-wrap: wrap; justify-content: space-between; color: var(--off); font-size: .85rem; margin: .2rem 0; gap: 0 1rem }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px }
.k0 { fill: #2f6fbb; background: #2f6fbb } .k1 { fill: #d9822b; background: #d9822b }
.k2 { fill: #1a9e77; background: #1a9e77 } .k3 { fill: #b8449c; background: #b8449c }
.k4 { fill: #8f8f1f; background: #8f8f1f } .k5 { fill: #c23b3b; background: #c23b3b }
.k6 { fill: #888; background: #888 }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 0 2.5rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; table-layout: fixed }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
.text { overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .85rem }
.count { text-align: right; width: 3.5rem } .wide .count { width: auto }
.bar { width: 4rem } .bar span { display: block; height: .6rem; margin-top: .45rem; background: var(--bar); border-radius: 2px }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{AtEnd, Events};

    const LOG: &str = "\
type=DAEMON_START msg=audit(1700000000.001:1): op=start auid=0 pid=1 uid=0 ses=1 res=success
type=SYSCALL msg=audit(1700000001.001:2): arch=c000003e syscall=257 success=no exit=-13 a0=0 a1=1 a2=0 a3=0 items=1 ppid=1 pid=2 auid=0 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 comm=\"cat\" exe=\"/usr/bin/<cat>\" key=\"identity\"
type=CWD msg=audit(1700000001.001:2): cwd=\"/\"
type=PATH msg=audit(1700000001.001:2): item=0 name=\"/etc/shadow\" inode=1 nametype=NORMAL
type=PROCTITLE msg=audit(1700000001.001:2): proctitle=636174
type=USER_LOGIN msg=audit(1700000050.001:3): pid=1 uid=0 auid=0 ses=1 msg='op=login id=0 exe=\"/usr/sbin/sshd\" hostname=192.0.2.7 addr=192.0.2.7 terminal=ssh res=success'
type=DAEMON_ERR msg=audit(1700000060.001:4): op=lost-events lost=3 reason=\"ring-full\" res=failed
type=DAEMON_END msg=audit(1700000070.001:5): op=terminate auid=0 uid=0 ses=1 pid=1 res=success
type=DAEMON_START msg=audit(1700000130.001:6): op=start auid=0 pid=1 uid=0 ses=1 res=success
";

    fn page(log: &str) -> String {
        let mut gather = Gather::new();
        let mut events = Events::new(2, 0, 0, AtEnd::All);
        events.read(log.as_bytes(), true, &mut gather).unwrap();
        gather.name_source("<audit.log>");
        render(&mut gather, &Clock::new())
    }

    #[test]
    fn page_has_no_external_resources() {
        let page = page(LOG);
        for forbidden in [
            "<script", "src=", "@import", "url(", "<link", "href=", "<cat>",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("/usr/bin/&lt;cat&gt;"));
    }

    #[test]
    fn page_shows_what_happened() {
        let page = page(LOG);
        for shown in [
            "<b>6</b> events",
            "<b>1</b> failed",
            "<b>3</b> lost",
            "<b>1</b> blind times",
            "identity",
            "/etc/shadow",
            "192.0.2.7",
            "openat EACCES",
            "ring-full",
            "60 s",
        ] {
            assert!(page.contains(shown), "{shown} is not in {page}");
        }
    }

    #[test]
    fn daemon_without_an_end_was_killed_after_its_last_event() {
        let start = |seconds: u32, node: &str| {
            format!(
                "{node}type=DAEMON_START msg=audit({seconds}.001:1): op=start auid=0 pid=1 res=success\n"
            )
        };
        let login = "type=USER_LOGIN msg=audit(1700000050.001:3): pid=1 uid=0 auid=1000 ses=1 msg='op=login id=0 \
                     exe=\"/x\" hostname=? addr=? terminal=ssh res=success'\x1dUID=\"root\" AUID=\"alice\"\n";
        let log = start(1_700_000_000, "") + login;
        let log = log + &start(1_700_001_000, "node=b ") + &start(1_700_003_650, "");
        let page = page(&log);
        assert!(page.contains("<b>1</b> blind times"), "{page}");
        assert!(page.contains("at most "), "{page}");
        assert!(page.contains("alice"), "{page}");
    }

    #[test]
    fn an_empty_log_has_a_page() {
        assert!(page("").contains("No events."));
    }
}
