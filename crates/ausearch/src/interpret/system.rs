//! Names of network protocols, from this host's `/etc/protocols`.

use std::collections::HashMap;
use std::fs;

/// Network protocols, read when the first is asked for.
#[derive(Debug, Default)]
pub(super) struct Protocols {
    names: Option<HashMap<i32, Vec<u8>>>,
}

impl Protocols {
    /// Name of a protocol.
    pub(super) fn name(&mut self, number: i32) -> Option<&[u8]> {
        self.names
            .get_or_insert_with(|| parse(&fs::read("/etc/protocols").unwrap_or_default()))
            .get(&number)
            .map(Vec::as_slice)
    }
}

fn parse(text: &[u8]) -> HashMap<i32, Vec<u8>> {
    let mut names = HashMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        if let (Some(name), Some(number)) = (words.next(), words.next())
            && let Ok(number) = String::from_utf8_lossy(number).parse()
        {
            names.entry(number).or_insert_with(|| name.to_vec());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts() {
        let names = parse(b"# x\nip\t0\tIP # pseudo\nhopopt 0 HOPOPT\n\ntcp 6 TCP");
        assert_eq!(names.get(&0), Some(&b"ip".to_vec()));
        assert_eq!(names.get(&6), Some(&b"tcp".to_vec()));
        assert_eq!(names.len(), 2);
    }
}
