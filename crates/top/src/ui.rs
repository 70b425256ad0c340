//! The state of the screen, and what keys do to it.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::control::Filter;
use crate::event::SeenEvent;
use crate::model::{Model, RuleOrder};
use crate::stream::{KEPT_EVENTS, Sample};

/// A table of the main screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    #[default]
    Rules,
    Programs,
    Users,
    Keys,
    Losses,
}

impl Panel {
    pub(crate) const ALL: [Self; 5] = [
        Self::Rules,
        Self::Programs,
        Self::Users,
        Self::Keys,
        Self::Losses,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Rules => "Rules",
            Self::Programs => "Programs",
            Self::Users => "Users",
            Self::Keys => "Keys",
            Self::Losses => "Losses",
        }
    }

    fn moved(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|panel| *panel == self);
        let at = (at.unwrap_or_default() + by) % Self::ALL.len();
        Self::ALL.get(at).copied().unwrap_or_default()
    }
}

/// What the user sees, beyond the data.
#[derive(Debug, Default)]
pub(crate) struct Ui {
    pub(crate) focus: Panel,
    /// Selected row of the focused table.
    pub(crate) selected: usize,
    pub(crate) order: RuleOrder,
    pub(crate) is_paused: bool,
    pub(crate) shows_help: bool,
    /// The list of records, if it is open.
    pub(crate) records: Option<RecordList>,
}

/// The events of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordList {
    pub(crate) title: String,
    /// Newest last.
    pub(crate) events: VecDeque<SeenEvent>,
    /// Distance of the selected event from the newest.
    pub(crate) selected: usize,
    /// Events that were left out.
    pub(crate) missed: u64,
    /// Why no events arrive.
    pub(crate) error: Option<String>,
}

/// What the program has to do for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Draw,
    Quit,
    /// Stop until the shell continues the program.
    Suspend,
    /// Open the list of records of a row.
    Open(Filter),
    /// Close it.
    Close,
}

impl RecordList {
    /// Adds events.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.missed += sample.skipped + sample.lost;
        for event in sample.events {
            if self.events.len() >= KEPT_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
            // The selection stays at its event, unless it is at the newest.
            if self.selected != 0 {
                self.selected = (self.selected + 1).min(KEPT_EVENTS - 1);
            }
        }
    }

    /// The selected event.
    pub(crate) fn event(&self) -> Option<&SeenEvent> {
        self.events.iter().rev().nth(self.selected)
    }
}

impl Ui {
    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent, model: &Model) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Action::Quit,
            KeyCode::Char('z') if control => return Action::Suspend,
            _ if self.shows_help => {
                self.shows_help = false;
                return Action::Draw;
            }
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('q') | KeyCode::Esc if self.records.is_some() => {
                self.records = None;
                return Action::Close;
            }
            KeyCode::Char('q') => return Action::Quit,
            code => match self.steps(code) {
                Some(steps) => self.move_selection(steps, model),
                None if self.records.is_none() => return self.main_key(code, model),
                None => {}
            },
        }
        Action::Draw
    }

    /// Rows by which a key moves the selection down.
    const fn steps(&self, code: KeyCode) -> Option<isize> {
        const PAGE: isize = 10;
        Some(match code {
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::PageDown => PAGE,
            KeyCode::PageUp => -PAGE,
            KeyCode::Home | KeyCode::Char('g') => isize::MIN,
            KeyCode::End | KeyCode::Char('G') => isize::MAX,
            _ => return None,
        })
    }

    fn move_selection(&mut self, steps: isize, model: &Model) {
        let rows = match &self.records {
            Some(list) => list.events.len(),
            None => self.rows(model),
        };
        let selected = match &mut self.records {
            Some(list) => &mut list.selected,
            None => &mut self.selected,
        };
        let last = rows.saturating_sub(1);
        *selected = selected.saturating_add_signed(steps).min(last);
    }

    fn main_key(&mut self, code: KeyCode, model: &Model) -> Action {
        match code {
            KeyCode::Tab | KeyCode::Right => self.focus_on(self.focus.moved(1)),
            KeyCode::BackTab | KeyCode::Left => {
                self.focus_on(self.focus.moved(Panel::ALL.len() - 1));
            }
            KeyCode::Char(digit @ '1'..='5') => {
                let at = usize::from(u8::try_from(digit).unwrap_or(b'1') - b'1');
                self.focus_on(Panel::ALL.get(at).copied().unwrap_or_default());
            }
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Enter => {
                if let Some((title, filter)) = self.row(model) {
                    self.records = Some(RecordList {
                        title,
                        ..RecordList::default()
                    });
                    return Action::Open(filter);
                }
            }
            _ => {}
        }
        Action::Draw
    }

    fn focus_on(&mut self, panel: Panel) {
        if self.focus != panel {
            self.focus = panel;
            self.selected = 0;
        }
    }

    /// Number of rows of the focused table.
    fn rows(&self, model: &Model) -> usize {
        match self.focus {
            Panel::Rules => model.rules(self.order).len(),
            Panel::Programs => model.programs().len(),
            Panel::Users => model.users().len(),
            Panel::Keys => model.keys().len(),
            Panel::Losses => model.losses().len(),
        }
    }

    /// Title and filter of the selected row; none for a loss, which has no records.
    fn row(&self, model: &Model) -> Option<(String, Filter)> {
        let names = match self.focus {
            Panel::Rules => {
                let row = model.rules(self.order).into_iter().nth(self.selected)?;
                let keys = row.keys.join(", ");
                let title = if keys.is_empty() {
                    "all events: the rule has no key to select by".to_owned()
                } else {
                    format!("events with the key {keys}")
                };
                let filter = Filter {
                    keys: row.keys,
                    ..Filter::default()
                };
                return Some((title, filter));
            }
            Panel::Programs => model.programs(),
            Panel::Users => model.users(),
            Panel::Keys => model.keys(),
            Panel::Losses => return None,
        };
        let row = names.into_iter().nth(self.selected)?;
        let kind = match self.focus {
            Panel::Programs => "program",
            Panel::Users => "user",
            _ => "key",
        };
        let filter = row.filter;
        Some((format!("events of the {kind} {}", row.name), filter))
    }
}
