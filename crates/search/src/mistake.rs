//! Draws mistakes in expressions and other arguments.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::expression::parse::Mistake;

/// The mistake with the text below it, and advice.
pub(crate) fn draw(origin: &str, text: &str, mistake: &Mistake) -> String {
    // Positions stay right: a control character becomes one of the same length.
    let shown: String = text
        .chars()
        .map(|letter| match letter {
            letter if letter.is_ascii_control() => ' ',
            letter => letter,
        })
        .collect();
    let snippet = Snippet::source(shown.as_str())
        .path(origin)
        .annotation(AnnotationKind::Primary.span(mistake.span.clone()));
    let group = Level::ERROR
        .primary_title(mistake.message.as_str())
        .element(snippet)
        .element(Level::HELP.message(mistake.advice.as_str()));
    Renderer::plain().render(&[group])
}
