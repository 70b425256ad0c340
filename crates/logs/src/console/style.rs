//! Colours of the console.

use anstyle::{AnsiColor, Style};

pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const BOLD: Style = Style::new().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(super) const ODD: Style = AnsiColor::Yellow.on_default();
pub(super) const KEY: Style = AnsiColor::Magenta.on_default();
