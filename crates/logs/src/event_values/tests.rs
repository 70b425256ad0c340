//! Tests of the values of events.

use audit::record::assemble::EventAssembler;

use super::*;

/// Values of one column.
fn found(text: &str, column: Column) -> Vec<String> {
    let mut assembler = EventAssembler::default();
    for line in text.lines() {
        let line = line
            .replace("type=", "")
            .replacen(' ', " msg=audit(1.000:1): ", 1);
        assembler
            .take(format!("type={line}").as_bytes(), 0)
            .unwrap();
    }
    assembler.end_all();
    let event = assembler.next_ended().unwrap();
    let mut found = Vec::new();
    values(&event, |of, value| {
        if of == column {
            found.push(value.to_str_lossy().into_owned());
        }
    });
    found
}

#[test]
fn names_are_joined_with_the_working_directory() {
    let text =
        "CWD cwd=\"/usr/lib\"\nPATH name=\"../share/./x\"\nPATH name=(null)\nPATH name=2F612062";
    assert_eq!(
        found(text, Column::Path),
        ["../share/./x", "/usr/share/x", "/a b"]
    );
    assert_eq!(found(text, Column::Directory), ["/usr/share", "/usr"]);
    assert_eq!(found(text, Column::FileName), ["x", "a b"]);
}

#[test]
fn keys_results_and_numbers_are_normalised() {
    let text = "SYSCALL pid=007 uid=0 success=no key=610162\x1dUID=\"root\"";
    assert_eq!(found(text, Column::Key), ["a", "b"]);
    assert_eq!(found(text, Column::Pid), ["7"]);
    assert_eq!(found(text, Column::Uid), ["0", "\x1droot"]);
    assert_eq!(found(text, Column::Success), ["no"]);
}

#[test]
fn records_of_programs_have_nested_values() {
    let text = "USER_LOGIN pid=1 msg='op=login acct=\"bob\" exe=\"/usr/sbin/sshd\" addr=192.0.2.7 res=success'";
    assert_eq!(found(text, Column::Account), ["bob"]);
    assert_eq!(found(text, Column::Exe), ["/usr/sbin/sshd"]);
    assert_eq!(found(text, Column::Address), ["192.0.2.7"]);
    assert_eq!(found(text, Column::Success), ["yes"]);
}

/// The values of a column are the same whether or not others are looked at.
#[test]
fn values_of_one_column_are_those_of_all() {
    let text = "type=SYSCALL msg=audit(1.000:1): pid=1 uid=0 ppid=2 xpid=3 uid=7 success=no exit=0 res=1 ses=-1 key=610162 \
         auid=5 comm=\"x pid=4\" exe=2F61 pid=9 addr=1.2.3.4\x1dUID=\"root\" AUID=\"bob\"\n\
         type=USER_LOGIN msg=audit(1.000:1): pid=5 uid=0 msg='op=login pid=6 acct=\"bob\" hostname=? addr=::1 res=failed'\n\
         type=AVC msg=audit(1.000:1): avc:  denied { read } for  pid=901 comm=\"x\" path=\"/srv\" ses=1 success=no key=(null)\n\
         type=CWD msg=audit(1.000:1): cwd=\"/a\" pid=7\n\
         type=PATH msg=audit(1.000:1): item=0 name=\"b\" exit=1\n\
         node=n type=SOCKADDR msg=audit(1.000:1): saddr=020000500A000001 laddr=x uid=8 syscall=1 euid=2\n";
    for end in 0..=text.len() {
        let mut assembler = EventAssembler::default();
        for line in text.get(..end).unwrap_or_default().lines() {
            let _cut = assembler.take(line.as_bytes(), 0);
        }
        assembler.end_all();
        while let Some(event) = assembler.next_ended() {
            for number in 0..Column::COUNT - 1 {
                let mut all = Vec::new();
                let mut column = Column::Type;
                values(&event, |of, value| {
                    if usize::from(of.number()) == number {
                        column = of;
                        all.push(value.to_vec());
                    }
                });
                let mut one = Vec::new();
                if usize::from(column.number()) == number {
                    values_of(column, &event, |value| one.push(value.to_vec()));
                }
                assert_eq!(one, all, "{column:?} {end}");
            }
        }
    }
}

#[test]
fn socket_addresses_are_decoded() {
    let saddr = |hex: &str, column| found(&format!("SOCKADDR saddr={hex}"), column);
    assert_eq!(saddr("020000500A000001", Column::Address), ["10.0.0.1"]);
    let six = "0A00005000000000000000000000000000000000000000010000";
    assert_eq!(saddr(six, Column::Address), ["::1"]);
    assert_eq!(saddr("01002F72756E2F7300", Column::Path), ["/run/s"]);
    assert_eq!(saddr("02", Column::Address), [""; 0]);
    assert_eq!(saddr("zz", Column::Address), [""; 0]);
}
