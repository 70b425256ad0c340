//! Draws mistakes in expressions and other arguments.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use logs::expression::parse::Mistake;

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

#[cfg(test)]
mod tests {
    use logs::accounts::Accounts;
    use logs::expression::parse::parse;

    use super::*;

    #[test]
    fn mistakes_show_the_place_and_advice() {
        let text = "key=a and exee~/tmp/";
        let mistake = parse(text, &Accounts::default()).unwrap_err();
        assert_eq!(
            draw("expression", text, &mistake),
            "error: unknown field `exee`\n \
             --> expression:1:11\n  \
               |\n\
             1 | key=a and exee~/tmp/\n  \
               |           ^^^^\n  \
               |\n  \
               = help: did you mean `exe`?"
        );
    }
}
