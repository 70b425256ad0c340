//! The list of events of a row, and the records of the selected one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState, Wrap};

use super::{BAD, DIM, GOOD, HEAD, SELECTED, TITLE};
use crate::event::SeenEvent;
use crate::model::Model;
use crate::number;
use crate::ui::RecordList;

/// Draws the list, newest event first, and the records below it.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, list: &RecordList, model: &Model) {
    let [title, events, records] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    let mut spans = vec![Span::styled(format!(" {}", list.title), TITLE)];
    if list.missed != 0 {
        let missed = number::count(list.missed);
        spans.push(Span::styled(format!("  (sample: {missed} left out)"), DIM));
    }
    if let Some(error) = &list.error {
        spans.push(Span::styled(format!("  {error}"), BAD));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), title);
    let widths = [
        Constraint::Length(12),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    let head = Row::new(["TIME (UTC)", "RESULT", "EVENT", "PROGRAM", "USER", "KEY"]).style(HEAD);
    let rows = list.events.iter().rev().map(|event| row(event, model));
    let table = Table::new(rows, widths)
        .header(head)
        .row_highlight_style(SELECTED);
    let mut state = TableState::new().with_selected(Some(list.selected));
    frame.render_stateful_widget(table, events, &mut state);
    let lines: Vec<Line<'_>> = match list.event() {
        Some(event) => event.records().map(|text| record(&text)).collect(),
        None => vec![Line::styled("waiting for events", DIM)],
    };
    let block = Block::bordered().title(" Records ").border_style(DIM);
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .block(block);
    frame.render_widget(text, records);
}

fn row(event: &SeenEvent, model: &Model) -> Row<'static> {
    let sec = event.time.sec;
    let [hours, minutes, seconds] = [sec / 3600 % 24, sec / 60 % 60, sec % 60];
    let milli = event.time.milli;
    let result = Cell::new(event.result.clone());
    let program = match event.pid {
        Some(pid) => format!("{}[{pid}]", event.program),
        None => event.program.clone(),
    };
    Row::new([
        Cell::new(format!("{hours:02}:{minutes:02}:{seconds:02}.{milli:03}")),
        match event.result.as_str() {
            "ok" => result.style(GOOD),
            "-" => result,
            _ => result.style(BAD),
        },
        Cell::new(event.what.clone()),
        Cell::new(program),
        Cell::new(user(event, model)),
        Cell::new(event.key().to_owned()),
    ])
}

/// The user, and who has logged in if that is another one.
fn user(event: &SeenEvent, model: &Model) -> String {
    let name = |uid: u32| model.users.name(uid);
    match (event.uid, event.auid) {
        (Some(uid), Some(login)) if uid != login => format!("{} ({})", name(uid), name(login)),
        (Some(uid), _) => name(uid),
        (None, Some(login)) => name(login),
        (None, None) => "-".to_owned(),
    }
}

fn record(text: &str) -> Line<'static> {
    let (kind, body) = text.split_once(' ').unwrap_or((text, ""));
    Line::from(vec![
        Span::styled(kind.to_owned(), HEAD),
        Span::raw(format!(" {body}")),
    ])
}
