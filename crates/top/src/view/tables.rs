//! The tables of the main screen.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::{BAD, DIM, HEAD, SELECTED};
use crate::model::{LossRow, Model, NameRow, RuleRow};
use crate::number;
use crate::ui::{Panel, Ui};

/// Width from which rules are shown as a whole.
const WIDE: u16 = 110;

/// Draws one table.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, panel: Panel, model: &Model, ui: &Ui) {
    let selected = (ui.focus == panel).then_some(ui.selected);
    match panel {
        Panel::Rules => rules(frame, area, &model.rules(ui.order), selected, model),
        Panel::Programs => names(frame, area, "PROGRAM", &model.programs(), selected, model),
        Panel::Users => names(frame, area, "USER", &model.users(), selected, model),
        Panel::Keys => names(frame, area, "KEY", &model.keys(), selected, model),
        Panel::Losses => losses(frame, area, &model.losses(), selected),
    }
}

fn rules(
    frame: &mut Frame<'_>,
    area: Rect,
    rows: &[RuleRow],
    selected: Option<usize>,
    model: &Model,
) {
    let is_wide = area.width >= WIDE;
    let detail_height = u16::from(area.height > 4);
    let [table, detail] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(detail_height)]).areas(area);
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(5),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    let mut head = vec![
        left("KEY"),
        left("COST"),
        right("CALLS"),
        right("EVENTS/S"),
        right("SHARE"),
        right("MATCHED"),
        right("LOST"),
    ];
    if is_wide {
        widths.insert(0, Constraint::Length(20));
        if let Some(rule) = widths.get_mut(1) {
            *rule = Constraint::Fill(1);
        }
        head.insert(1, left("RULE"));
    }
    let body = rows.iter().map(|row| {
        let keys = if row.keys.is_empty() && !is_wide {
            row.rule.clone()
        } else {
            row.keys.join(", ")
        };
        let mut cells = vec![left(keys)];
        if is_wide {
            cells.push(left(row.rule.clone()));
        }
        let lost = right(number::count(row.lost));
        cells.extend([
            left(row.cost.clone()),
            right(
                row.syscalls
                    .map_or_else(String::new, |count| count.to_string()),
            ),
            right(number::rate(row.per_second)),
            right(number::percent(row.share)),
            right(number::count(row.matched)),
            if row.lost == 0 { lost } else { lost.style(BAD) },
        ]);
        Row::new(cells)
    });
    let empty = if model.status.rules == 0 && model.error.is_none() {
        "no rules are loaded: `tollgate auditctl -R FILE` loads some"
    } else {
        ""
    };
    table_of(
        frame,
        table,
        (head, &widths),
        body.collect(),
        (selected, empty),
    );
    let shown = selected.and_then(|selected| rows.get(selected));
    if let Some(row) = shown {
        let text = Line::raw(format!(" rule {}", row.rule));
        frame.render_widget(Paragraph::new(text), detail);
    }
}

fn names(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'static str,
    rows: &[NameRow],
    selected: Option<usize>,
    model: &Model,
) {
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(6),
    ];
    // The other columns and the blanks between them.
    let name_width = usize::from(area.width.saturating_sub(17));
    let (taken, all) = model.sampled();
    let title = if taken < all {
        let (taken, all) = (number::count(taken), number::count(all));
        format!("{title}  (sample: {taken} of {all})")
    } else {
        title.to_owned()
    };
    let body = rows.iter().map(|row| {
        Row::new([
            left(number::end_of(&row.name, name_width)),
            right(number::rate(row.per_second)),
            right(number::percent(row.share)),
        ])
    });
    let head = vec![left(title), right("EVENTS/S"), right("SHARE")];
    table_of(
        frame,
        area,
        (head, &widths),
        body.collect(),
        (selected, "no events in the last seconds"),
    );
}

fn losses(frame: &mut Frame<'_>, area: Rect, rows: &[LossRow], selected: Option<usize>) {
    let widths = [
        Constraint::Length(15),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(12),
    ];
    let body = rows.iter().map(|row| {
        let cells = Row::new([
            left(row.stage),
            left(row.reason.clone()),
            right(number::rate(row.per_second)),
            right(number::count(row.total)),
        ]);
        if row.total == 0 {
            cells.style(DIM)
        } else {
            cells.style(BAD)
        }
    });
    let head = vec![
        left("STAGE"),
        left("REASON"),
        right("EVENTS/S"),
        right("TOTAL"),
    ];
    table_of(frame, area, (head, &widths), body.collect(), (selected, ""));
}

/// Draws a table with its selected row in view, or a text if it has no rows.
fn table_of(
    frame: &mut Frame<'_>,
    area: Rect,
    (head, widths): (Vec<Cell<'static>>, &[Constraint]),
    rows: Vec<Row<'_>>,
    (selected, empty): (Option<usize>, &'static str),
) {
    let last = rows.len().saturating_sub(1);
    let mut state = TableState::new().with_selected(selected.map(|at| at.min(last)));
    let is_empty = rows.is_empty();
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(HEAD))
        .row_highlight_style(SELECTED);
    frame.render_stateful_widget(table, area, &mut state);
    if is_empty && area.height > 1 {
        let below = Rect {
            y: area.y + 1,
            height: 1,
            ..area
        };
        frame.render_widget(Paragraph::new(Line::styled(empty, DIM)), below);
    }
}

fn left<'a>(text: impl Into<Text<'a>>) -> Cell<'a> {
    Cell::new(text)
}

fn right<'a>(text: impl Into<Text<'a>>) -> Cell<'a> {
    Cell::new(text.into().alignment(Alignment::Right))
}
