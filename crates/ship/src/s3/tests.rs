//! Tests of what a store answers.

use super::*;

fn answered(status: u16, body: &str) -> anyhow::Result<()> {
    let mut answer = Answer::default();
    (answer.status, answer.body) = (status, body.as_bytes().to_vec());
    taken(&answer, "https://a/b")
}

#[test]
fn refusals_tell_what_to_look_at() {
    for status in [200, 201, 204] {
        answered(status, "").unwrap();
    }
    let xml = "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>It is\nnot there</Message></Error>";
    for (status, body, expected) in [
        (
            404,
            xml,
            "`https://a/b` answers 404: NoSuchBucket: It is not there: look at the bucket in `url`",
        ),
        (
            403,
            "no XML",
            "`https://a/b` answers 403: look at `access_key`",
        ),
        (
            301,
            "<Code>PermanentRedirect</Code>",
            "`https://a/b` answers 301: PermanentRedirect: look at `region`",
        ),
        (
            403,
            "<Code>InvalidAccessKeyId</Code><Message>It is not in our records.</Message>",
            "`https://a/b` answers 403: InvalidAccessKeyId: It is not in our records: look at `access_key`",
        ),
        (418, "", "`https://a/b` answers 418: nothing is dropped"),
    ] {
        let error = answered(status, body).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let long = format!("<Code>{}</Code>", "x".repeat(100_000));
    assert!(answered(400, &long).unwrap_err().to_string().len() < 1000);
    let later = answered(503, "<Code>SlowDown</Code>").unwrap_err();
    assert_eq!(
        later.downcast_ref(),
        Some(&Later {
            after: Duration::ZERO,
            text: "`https://a/b` answers 503: SlowDown".to_owned(),
        })
    );
}

#[test]
fn checksum_is_that_of_the_whole_file() {
    let file = tempfile::tempfile().unwrap();
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(checksum(&file).unwrap(), (0, empty.to_owned()));
    let text = vec![7; FILE_BYTES + 1];
    file.write_all_at(&text, 0).unwrap();
    let (len, sum) = checksum(&file).unwrap();
    assert_eq!(len, 65_537);
    let expected = digest::digest(&SHA256, &text);
    assert_eq!(sum, hex(expected.as_ref()));
}
