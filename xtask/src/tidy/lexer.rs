//! Blanks out comments, strings and items under `#[cfg(test)]` in Rust source.

/// The code of a file: comments, contents of strings, and items for tests only are replaced with blanks. Line
/// numbers do not change.
pub(super) fn code_of(text: &str) -> String {
    let mut code = without_comments(text);
    while let Some(start) = code.find("#[cfg(test)]") {
        let end = end_of_item(&code, start);
        let blank: String = code
            .get(start..end)
            .unwrap_or_default()
            .chars()
            .map(|char| if char == '\n' { '\n' } else { ' ' })
            .collect();
        code.replace_range(start..end, &blank);
    }
    code
}

/// Whether a character is part of an identifier.
pub(super) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The end of the item after an attribute: its closing brace, or a semicolon before any brace.
fn end_of_item(code: &str, start: usize) -> usize {
    let mut open = 0_usize;
    for (at, char) in code.get(start..).unwrap_or_default().char_indices() {
        match char {
            '{' | '[' | '(' => open += 1,
            '}' | ']' | ')' => {
                open = open.saturating_sub(1);
                if open == 0 && char == '}' {
                    return start + at + 1;
                }
            }
            ';' if open == 0 => return start + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The text with blanks in place of comments and of the contents of strings.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            string(rest)
        } else if first == 'r' && !is_word(before) {
            raw_string(rest).unwrap_or(0)
        } else if first == '\'' {
            character(rest)
        } else {
            0
        };
        if length == 0 {
            code.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        } else {
            let (skipped, after) = rest.split_at(length);
            let blanks = skipped
                .chars()
                .map(|char| if char == '\n' { char } else { ' ' });
            code.extend(blanks);
            rest = after;
        }
        // `br"..."`: the prefix is not an identifier.
        before = if first == 'b' && !is_word(before) {
            ' '
        } else {
            first
        };
    }
    code
}

fn block_comment(text: &str) -> usize {
    let mut open = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (open, at) = (open + 1, at + 2),
            Some(b"*/") => {
                (open, at) = (open - 1, at + 2);
                if open == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of `r"..."` or `r#"..."#`.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text
        .get(1..)?
        .bytes()
        .take_while(|&byte| byte == b'#')
        .count();
    let body = text.get(1 + hashes..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let at = body.find(&end)?;
    Some(1 + hashes + 1 + at + end.len())
}

/// The length of a character, or 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text
            .get(3..)
            .and_then(|rest| rest.find('\''))
            .map_or(0, |at| at + 4),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        code_of(text)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn comments_and_strings_are_blanks() {
        let text =
            "a // b\n/* c /* d */ e */ f \"g \\\" h\" r#\"i \" j\"# 'k' '\\'' l<'m> br\"n\"\n";
        assert_eq!(words(text), ["a", "f", "l<'m>", "b"]);
        assert_eq!(code_of(text).lines().count(), 2);
    }

    #[test]
    fn items_for_tests_are_blanks() {
        let text = "a\n#[cfg(test)]\nmod tests {\n  b { c }\n}\n#[cfg(test)]\nuse d;\ne\n";
        assert_eq!(words(text), ["a", "e"]);
        assert_eq!(code_of(text).lines().count(), 8);
    }
}
