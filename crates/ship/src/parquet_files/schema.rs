//! The schema of the files, and how they are encoded.

use std::sync::Arc;

use anyhow::Context as _;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};

/// The schema as text. docs/parquet.md describes its columns.
const SCHEMA: &str = include_str!("schema.txt");
/// Higher levels save some percent and cost as much time as the rest.
const ZSTD_LEVEL: i32 = 1;
/// Columns whose values ascend, or nearly so.
const ASCENDING: [&str; 2] = ["time", "serial"];
/// The text of an event does not occur twice.
const UNIQUE: &str = "records";
/// Columns whose least and greatest value tell readers which row groups they need not read.
const BOUNDED: [&str; 4] = ["time", "serial", "auid", "kind"];

/// Leaves of the schema, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Kind,
    Host,
    Boot,
    Time,
    Serial,
    Node,
    Type,
    Arch,
    Syscall,
    Number,
    Success,
    Exit,
    A0,
    A1,
    A2,
    A3,
    Ppid,
    Pid,
    Auid,
    Uid,
    Gid,
    Euid,
    Suid,
    Fsuid,
    Egid,
    Sgid,
    Fsgid,
    Ses,
    Tty,
    Comm,
    Exe,
    Subj,
    Key,
    Argv,
    Cwd,
    PathName,
    PathNametype,
    PathInode,
    PathDev,
    PathMode,
    PathOuid,
    PathOgid,
    PathRdev,
    PathObj,
    Proctitle,
    Saddr,
    SaddrFam,
    SaddrAddress,
    SaddrPort,
    SaddrPath,
    Op,
    Acct,
    Addr,
    Hostname,
    Terminal,
    Cmd,
    Res,
    Records,
    After,
    Before,
    Missing,
    Reason,
    KernelSerial,
    Events,
    Sent,
    Malformed,
    Gaps,
    LostKey,
    LostValue,
    Version,
}

/// The schema.
///
/// # Errors
/// None is known: the text is part of the program.
pub(super) fn schema() -> anyhow::Result<SchemaDescriptor> {
    let schema = parse_message_type(SCHEMA).context("cannot parse the schema")?;
    Ok(SchemaDescriptor::new(Arc::new(schema)))
}

/// How columns are encoded.
///
/// # Errors
/// None is known: the level of the compression is a constant.
pub(super) fn properties() -> anyhow::Result<WriterPropertiesPtr> {
    let path = |name: &str| ColumnPath::from(name);
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_created_by(concat!("tollgate-ship ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_column_dictionary_enabled(path(UNIQUE), false);
    for name in BOUNDED {
        properties = properties.set_column_statistics_enabled(path(name), EnabledStatistics::Chunk);
    }
    for name in ASCENDING {
        properties = properties
            .set_column_dictionary_enabled(path(name), false)
            .set_column_encoding(path(name), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(Arc::new(properties.build()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_has_every_column_in_order() {
        let page = include_str!("../../../../docs/parquet.md");
        let (_, table) = page.split_once("\n| column | type | what |\n").unwrap();
        let rows = table
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with("| "));
        let told = rows.flat_map(|row| {
            let names = row.split(" | ").next().unwrap_or_default();
            names.split('`').skip(1).step_by(2)
        });
        let schema = schema().unwrap();
        let columns = schema.root_schema().get_fields().iter();
        let columns: Vec<&str> = columns.map(|column| column.name()).collect();
        assert_eq!(told.collect::<Vec<_>>(), columns);
    }

    /// Names of the leaves as `Debug` prints them.
    #[test]
    fn leaves_are_those_of_the_schema() {
        let schema = schema().unwrap();
        let mut leaves: Vec<String> = Vec::new();
        for leaf in schema.columns() {
            let parts = leaf.path().parts().iter();
            let parts = parts.filter(|part| !["list", "element", "key_value"].contains(&&***part));
            let words = parts.flat_map(|part| part.split('_')).map(|word| {
                let (first, rest) = word.split_at(1);
                first.to_uppercase() + rest
            });
            leaves.push(words.collect());
        }
        assert_eq!(leaves.len(), Leaf::Version as usize + 1);
        for leaf in [
            Leaf::Kind,
            Leaf::Serial,
            Leaf::A3,
            Leaf::Key,
            Leaf::PathName,
            Leaf::PathObj,
            Leaf::SaddrPath,
            Leaf::Records,
            Leaf::LostValue,
            Leaf::Version,
        ] {
            assert_eq!(leaves[leaf as usize], format!("{leaf:?}"));
        }
    }
}
