//! Tests of the rows.

use audit::record::assemble::EventAssembler;
use inputs::fuzz::fuzz;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use super::super::schema::{properties, schema};
use super::*;

const LOG: &str = "node=h type=SYSCALL msg=audit(1700000000.042:7): arch=c000003e syscall=59 success=yes exit=0 a0=1 \
    a1=2 a2=3 a3=4 items=1 ppid=1 pid=42 auid=4294967295 uid=0 tty=(none) ses=3 comm=61FF62 exe=\"/bin/a\" \
    subj=unconfined key=610162\nnode=h type=EXECVE msg=audit(1700000000.042:7): argc=2 a0=\"a\" a1=C3A4\n\
    node=h type=CWD msg=audit(1700000000.042:7): cwd=\"/\"\n\
    node=h type=PATH msg=audit(1700000000.042:7): item=0 name=(null) inode=5 dev=08:01 nametype=NORMAL cap_fp=0\n\
    node=h type=SOCKADDR msg=audit(1700000000.042:7): saddr=0A00153800000000\n\
    type=USER_LOGIN msg=audit(1.000:9): pid=7 uid=0 msg='op=login acct=\"ro ot\" addr=10.0.0.1 res=failed'\n";

/// Whatever a log has, its rows are written and read.
#[test]
fn fuzz_parquet_rows() {
    const WORDS: &[&str] = &[
        "type=PATH msg=audit(1.000:9): ",
        "type=SOCKADDR msg=audit(1.000:9): saddr=",
        "type=EOE msg=audit(1.000:9): ",
        "name=",
        "key=",
        "msg='",
        "0100",
        "FF",
        "\n",
        "\u{1d}",
        "(null)",
        "-9223372036854775808",
    ];
    fuzz(
        "fuzz_parquet_rows",
        &[LOG.as_bytes().to_vec()],
        WORDS,
        50,
        |bytes| {
            let schema = schema().unwrap();
            let mut table = Table::new(&schema);
            let mut assembler = EventAssembler::default();
            for line in bytes.split(|&byte| byte == b'\n') {
                let _malformed = assembler.take(line, 0);
            }
            assembler.end_all();
            let mut count = 0;
            while let Some(event) = assembler.next_ended() {
                let frame = Frame {
                    host: "h",
                    boot: "b",
                    record: frame::Record::Event(&event),
                };
                append(&frame, &mut table);
                count += 1;
            }
            if count == 0 {
                return;
            }
            let root = schema.root_schema_ptr();
            let file = tempfile::tempfile().unwrap();
            let mut writer = SerializedFileWriter::new(file, root, properties().unwrap()).unwrap();
            table.write(&mut writer).unwrap();
            let file = writer.into_inner().unwrap();
            let reader = SerializedFileReader::new(file).unwrap();
            let rows = reader.get_row_iter(None).unwrap();
            assert_eq!(rows.map(Result::unwrap).count(), count);
        },
    );
}
