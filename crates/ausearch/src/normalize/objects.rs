//! Objects of syscalls: files, their attributes, and what they become.

use super::{Normalizer, ObjectKind};
use crate::ctext::{self, low_32};
use crate::record_type as ty;

impl Normalizer<'_> {
    pub(super) fn set_object2(&mut self, name: &str, record: usize) {
        self.walk.go_to_record(record);
        self.walk.first_field();
        if self.walk.find(name) {
            self.sentence.object2 = Some(self.walk.place_in(record));
        }
    }

    /// Sets the object to the path in `record`, or to the next that is no parent directory.
    pub(super) fn set_file_object(&mut self, record: usize) {
        self.walk.go_to_record(record);
        self.walk.first_field();
        let mut parent = 0;
        let found = loop {
            if !self.walk.find("nametype") {
                break false;
            }
            if self.walk.value() != Some(b"PARENT") {
                break true;
            }
            if parent == 0 {
                parent = self.walk.record_number();
            }
            if !self.walk.next_record() {
                break true;
            }
        };
        let record = if found {
            self.walk.record_number()
        } else {
            // A file that could not be opened may have its directory only.
            if parent == 0 {
                return;
            }
            self.walk.go_to_record(parent);
            self.walk.first_field();
            parent
        };
        if self.walk.kind() != ty::PATH {
            return;
        }
        self.walk.first_field();
        self.set_object("name", record);
        if self.walk.find("inode") {
            self.sentence.object_secondary = Some(self.walk.place_in(record));
        }
        if self.walk.find("mode") {
            self.set_kind_of_mode();
        }
    }

    pub(super) fn set_kind_of_mode(&mut self) {
        let mode = ctext::unsigned(self.walk.value().unwrap_or_default(), 8);
        if mode.overflow {
            return;
        }
        let kind = match low_32(mode.value) & 0o170_000 {
            0o100_000 => ObjectKind::File,
            0o040_000 => ObjectKind::Directory,
            0o020_000 => ObjectKind::CharacterDevice,
            0o060_000 => ObjectKind::BlockDevice,
            0o010_000 => ObjectKind::Fifo,
            0o120_000 => ObjectKind::Symlink,
            0o140_000 => ObjectKind::Socket,
            _ => return,
        };
        self.sentence.object_kind = kind;
    }

    /// The new mode of a file.
    pub(super) fn mode_of(&mut self, syscall: &[u8]) {
        self.walk.first_record();
        if self
            .walk
            .find(if syscall == b"fchmodat" { "a2" } else { "a1" })
        {
            self.sentence.object2 = Some(self.walk.place_in(0));
        }
    }

    /// The new owner of a file: the user, or the group if the user stays.
    pub(super) fn owner_of(&mut self, syscall: &[u8]) {
        self.walk.first_record();
        if self
            .walk
            .find(if syscall == b"fchownat" { "a2" } else { "a1" })
        {
            let value = self.walk.value().unwrap_or_default();
            let is_number = !ctext::signed(value, 10).1.overflow;
            if self.walk.number() == -1 && is_number {
                self.walk.next_field();
            }
            self.sentence.object2 = Some(self.walk.place_in(0));
        }
    }

    /// The new identity of a process: the first id that is set.
    pub(super) fn identity_of(&mut self, syscall: &[u8]) {
        let limit = match syscall {
            b"setuid" | b"setgid" => 1,
            b"setreuid" | b"setregid" => 2,
            b"setresuid" | b"setresgid" => 3,
            _ => return,
        };
        self.walk.first_record();
        if !self.walk.find("a0") {
            return;
        }
        for count in 1..=limit {
            if self.walk.text(self.interpreter) != b"unset" {
                break;
            }
            if count == limit || !self.walk.next_field() {
                return;
            }
        }
        self.sentence.object2 = Some(self.walk.place_in(0));
    }

    /// Collects the attributes of the object from the records behind the syscall.
    pub(super) fn file_attributes(&mut self) {
        if !self.with_attributes {
            return;
        }
        self.walk.first_record();
        let mut parent = 0;
        loop {
            match self.walk.kind() {
                ty::PATH => {
                    let is_parent =
                        self.walk.find("nametype") && self.walk.value() == Some(b"PARENT");
                    if !is_parent {
                        return self.path_attributes();
                    }
                    if parent == 0 {
                        parent = self.walk.record_number();
                    }
                }
                ty::CWD => {
                    let record = self.walk.record_number();
                    self.add_object_attribute("cwd", record);
                }
                ty::SOCKADDR => {
                    let record = self.walk.record_number();
                    self.add_object_attribute("saddr", record);
                }
                _ => {}
            }
            if !self.walk.next_record() {
                break;
            }
        }
        if parent != 0 {
            self.walk.go_to_record(parent);
            self.path_attributes();
        }
    }

    pub(super) fn path_attributes(&mut self) {
        let record = self.walk.record_number();
        self.walk.first_field();
        // A file that could not be opened has nothing else.
        if !self.add_object_attribute("mode", record) {
            return;
        }
        while self.walk.next_field() {
            let place = self.walk.place_in(record);
            self.sentence.object_attributes.push(place);
        }
    }
}
