//! Output for scripts and reports: the tables as text, or one JSON object per interval.

use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde::Serialize;

use crate::control::{Control, Filter};
use crate::model::{LossRow, Model, NameRow, RuleOrder, RuleRow, lost};
use crate::poller::{Poll, Poller};
use crate::stream::Stream;
use crate::ui::Ui;
use crate::users::Users;
use crate::view;

/// Size of the text: all tables.
const SIZE: (u16, u16) = (160, 50);
/// Longest wait for an answer of the daemon.
const PATIENCE: Duration = Duration::from_secs(30);

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// What is printed as JSON. Scripts depend on the names: members are added, never renamed.
#[derive(Debug, Serialize)]
struct Document {
    interval_seconds: f64,
    events_per_second: f64,
    lost_per_second: f64,
    matched: u64,
    written: u64,
    lost: u64,
    backlog: u64,
    /// Events of the programs, users and keys, and those that they stand for.
    sampled: u64,
    sampled_of: u64,
    rules: Vec<RuleRow>,
    losses: Vec<LossRow>,
    programs: Vec<NameRow>,
    users: Vec<NameRow>,
    keys: Vec<NameRow>,
}

/// Prints `count` times, each after an interval.
///
/// # Errors
/// No daemon answers, or the output cannot be written.
pub(crate) fn run(
    control: &Control,
    form: Form,
    interval: Duration,
    (count, sample): (u64, u32),
) -> anyhow::Result<()> {
    let mut poller = Poller::start(control.clone())?;
    let mut model = Model::new(Users::read());
    let mut last = take(&mut poller, &mut model, Duration::ZERO)?;
    let stream = Stream::start(control.clone(), Filter::default(), sample)?;
    for _ in 0..count {
        wait(interval);
        let passed = last.elapsed();
        last = take(&mut poller, &mut model, passed)?;
        model.add_sample(stream.take(), passed);
        let text = match form {
            Form::Text => text(&model)?,
            Form::Json => {
                let document = document(&model, passed);
                serde_json::to_string(&document).context("cannot encode JSON")? + "\n"
            }
        };
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write to standard output")?,
        }
    }
    Ok(())
}

/// Waits for the end of an interval.
fn wait(interval: Duration) {
    let until = Instant::now() + interval;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}

/// Takes over the state of the daemon.
fn take(poller: &mut Poller, model: &mut Model, passed: Duration) -> anyhow::Result<Instant> {
    poller.ask(model.lacks_costs());
    let Poll { status, costs, at } = poller
        .wait(PATIENCE)
        .context("the daemon does not answer")?;
    if let Some(costs) = costs {
        model.costs = costs;
    }
    match status {
        Ok(status) => model.update(status, passed),
        Err(error) => bail!(error),
    }
    Ok(at)
}

fn document(model: &Model, passed: Duration) -> Document {
    let (sampled, sampled_of) = model.sampled();
    Document {
        interval_seconds: passed.as_secs_f64(),
        events_per_second: model.rates.matched,
        lost_per_second: model.rates.lost,
        matched: model.status.counts.matched,
        written: model.status.counts.written,
        lost: lost(&model.status),
        backlog: model.status.settings.backlog,
        sampled,
        sampled_of,
        rules: model.rules(RuleOrder::Rate),
        losses: model.losses(),
        programs: model.programs(),
        users: model.users(),
        keys: model.keys(),
    }
}

/// The large screen as text, without the line of keys.
fn text(model: &Model) -> anyhow::Result<String> {
    let (width, height) = SIZE;
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| view::draw(frame, model, &Ui::default()))?;
    let mut lines = lines(terminal.backend().buffer());
    lines.pop();
    Ok(lines.concat())
}

/// The lines of a screen, without blanks at their ends.
pub(crate) fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content().chunks(width);
    rows.map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    })
    .collect()
}
