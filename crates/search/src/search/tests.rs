//! The manual page agrees with the options; `tests/questions.rs` runs the examples.

use clap::CommandFactory as _;

use super::*;

#[test]
fn manual_page_is_current() {
    let page = manual::Page::new("tollgate-search", Args::command());
    page.check().unwrap();
}

#[test]
fn arguments_are_consistent() {
    Args::command().debug_assert();
}
