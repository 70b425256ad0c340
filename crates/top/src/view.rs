//! Draws the screen. A small one shows one table, a large one all of them.

mod records;
mod tables;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

use crate::model::{Model, lost};
use crate::number;
use crate::ui::{Panel, Ui};

/// A screen of this size shows all tables.
const LARGE: (u16, u16) = (140, 36);

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const GOOD: Style = Style::new().fg(Color::Green);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const HEAD: Style = Style::new().fg(Color::Cyan);
const PAUSED: Style = Style::new()
    .fg(Color::Black)
    .bg(Color::Yellow)
    .add_modifier(Modifier::BOLD);

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, ui: &Ui) {
    let alerts = model.alerts();
    let alert_rows = u16::try_from(alerts.len()).unwrap_or(u16::MAX).min(3);
    let [head, alert, body, foot] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(alert_rows),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, head, model, ui);
    let lines = alerts
        .iter()
        .map(|alert| Line::styled(format!(" ! {alert}"), BAD));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), alert);
    if let Some(list) = &ui.records {
        records::draw(frame, body, list, model);
    } else if body.width >= LARGE.0 && frame.area().height >= LARGE.1 {
        all_tables(frame, body, model, ui);
    } else {
        one_table(frame, body, model, ui);
    }
    frame.render_widget(keys(ui), foot);
    if ui.shows_help {
        help(frame);
    }
}

/// Four lines: the daemon, events, losses, price.
fn header(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &Ui) {
    let status = &model.status;
    let [title, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let curve_width = (area.width / 5).clamp(12, 60);
    let [text, curve] =
        Layout::horizontal([Constraint::Min(20), Constraint::Length(curve_width)]).areas(below);
    let mut first = vec![Span::styled(" tollgate top", TITLE)];
    if model.error.is_some() {
        first.push(Span::styled("  no daemon", BAD));
    } else {
        first.push(Span::raw(format!(
            "  {} process {}, up {}, engine {}, {} hooks",
            status.version,
            status.settings.pid,
            number::duration(status.uptime_seconds),
            status.engine,
            status.hooks.len()
        )));
    }
    if ui.is_paused {
        first.push(Span::raw("  "));
        first.push(Span::styled(" PAUSED ", PAUSED));
    }
    let rates = &model.rates;
    let events = Line::from(vec![
        Span::styled(" events", HEAD),
        Span::styled(format!("  {}/s", number::rate(rates.matched)), TITLE),
        Span::raw(format!(
            "  matched {}  written {}  backlog {}",
            number::count(status.counts.matched),
            number::count(status.counts.written),
            number::count(status.settings.backlog)
        )),
    ]);
    let all_lost = lost(status);
    let style = if all_lost == 0 { GOOD } else { BAD };
    let mut losses = vec![
        Span::styled(" lost  ", HEAD),
        Span::styled(format!("  {}/s", number::rate(rates.lost)), style),
        Span::styled(format!("   {} in total", number::count(all_lost)), style),
    ];
    let reasons = status.counts.lost.iter().map(|(reason, count)| {
        let count = number::count(*count);
        format!("{count} {reason}")
    });
    let reasons: Vec<String> = reasons.collect();
    if !reasons.is_empty() {
        losses.push(Span::raw(format!(": {}", reasons.join(", "))));
    }
    frame.render_widget(Paragraph::new(Line::from(first)), title);
    if area.width >= LARGE.0 {
        let most = model.history.iter().max().copied().unwrap_or_default();
        let most = Line::styled(format!("peak {}/s ", number::count(most)), DIM);
        frame.render_widget(Paragraph::new(most.right_aligned()), title);
    }
    let lines = vec![
        events,
        Line::from(losses),
        Line::from(vec![Span::styled(" cost  ", HEAD), Span::raw(price(model))]),
    ];
    frame.render_widget(Paragraph::new(lines), text);
    draw_curve(frame, curve, model);
}

/// What the rules cost, as `tollgate explain` says.
fn price(model: &Model) -> String {
    let costs = &model.costs;
    let price = match costs.paying_syscall_ns {
        Some(paying) => format!(
            "  {} ns a syscall, {paying} ns more if a rule names it",
            costs.every_syscall_ns
        ),
        None => "  nothing for syscalls that no rule names".to_owned(),
    };
    match model.rates.programs {
        Some(share) => format!("{price}, programs {} of a CPU", number::percent(share)),
        None => price,
    }
}

/// The curve of events per second.
fn draw_curve(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let width = usize::from(area.width);
    let skipped = model.history.len().saturating_sub(width);
    let points: Vec<u64> = model.history.iter().copied().skip(skipped).collect();
    let most = points.iter().copied().max().unwrap_or_default();
    // Zeros on the left: the newest point is at the right edge.
    let missing = width.saturating_sub(points.len());
    let points = std::iter::repeat_n(0, missing).chain(points);
    let curve_widget = Sparkline::default()
        .data(points.collect::<Vec<_>>())
        .max(most.max(1))
        .style(HEAD);
    frame.render_widget(curve_widget, area);
}

fn one_table(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &Ui) {
    let [tabs, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let mut spans = vec![Span::raw(" ")];
    for (number, panel) in (1..).zip(Panel::ALL) {
        let style = if panel == ui.focus { SELECTED } else { DIM };
        spans.push(Span::styled(format!(" {number} {} ", panel.title()), style));
        spans.push(Span::raw(" "));
    }
    if ui.focus == Panel::Rules {
        spans.push(Span::styled(format!(" by {}", ui.order.name()), DIM));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), tabs);
    tables::draw(frame, table, ui.focus, model, ui);
}

fn all_tables(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &Ui) {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(62), Constraint::Fill(1)]).areas(area);
    let [rules, losses] = Layout::vertical([Constraint::Fill(2), Constraint::Fill(1)]).areas(left);
    let [programs, users, keys] = Layout::vertical([
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .areas(right);
    for (panel, area) in Panel::ALL
        .into_iter()
        .zip([rules, programs, users, keys, losses])
    {
        let is_focused = panel == ui.focus;
        let style = if is_focused { TITLE } else { DIM };
        let order = match panel {
            Panel::Rules => format!("by {} ", ui.order.name()),
            _ => String::new(),
        };
        let block = Block::bordered()
            .title(format!(" {} {order}", panel.title()))
            .border_style(style);
        let inner = block.inner(area);
        frame.render_widget(block, area);
        tables::draw(frame, inner, panel, model, ui);
    }
}

/// The line of keys.
fn keys(ui: &Ui) -> Paragraph<'static> {
    let keys: &[(&str, &str)] = if ui.records.is_some() {
        &[
            ("q", "back"),
            ("Up/Down", "select"),
            ("End", "oldest"),
            ("Home", "newest"),
            ("p", "pause"),
            ("?", "help"),
        ]
    } else {
        &[
            ("q", "quit"),
            ("Tab", "table"),
            ("Up/Down", "select"),
            ("Enter", "records"),
            ("s", "sort"),
            ("p", "pause"),
            ("?", "help"),
        ]
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled(format!(" {key}"), TITLE));
        spans.push(Span::styled(format!(" {what} "), DIM));
    }
    Paragraph::new(Line::from(spans))
}

const HELP: [&str; 18] = [
    "Tab, 1 to 5    next table, or the table of this number",
    "Up, Down       select a row; PageUp, PageDown, Home, End",
    "Enter          show the records of the row as they arrive",
    "q, Esc         leave the records; q ends the program",
    "s              order of rules: events/s, total, lost, list",
    "p, Space       pause and go on; Ctrl-Z suspends",
    "",
    "COST           how frequent the syscalls of a rule are,",
    "               as tollgate explain says",
    "CALLS          syscalls that the rule names",
    "EVENTS/S       events in the last interval",
    "",
    "Rules and losses are the counters of the daemon.",
    "Programs, users and keys are counted in the events",
    "that arrive here: all of them, or a random sample.",
    "A user is the login user, if there is one.",
    "",
    "tollgate-top(8) has more. Any key closes this help.",
];

fn help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (62.min(area.width), 20.min(area.height));
    let popup = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let text: Vec<Line<'_>> = HELP.into_iter().map(Line::raw).collect();
    frame.render_widget(Clear, popup);
    frame.render_widget(
        Paragraph::new(text).block(Block::bordered().title(" Help ")),
        popup,
    );
}
