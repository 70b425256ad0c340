//! Starts the indexer and the archiver, and changes names for the archiver.

use std::sync::Arc;

use crossbeam_channel::{Receiver, never};
use logs::cursor::FileId;

use super::archiver::{self, ArchivedLog, Archiver, Machine, NameChange, NameRequest};
use super::indexer::Indexer;
use super::system::SyslogSeverity;
use super::{AuditLog, LogOptions, rotate};

impl AuditLog {
    /// Indexes the log, and compresses old logs, as `options` tell.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn with_options(
        mut self,
        options: LogOptions,
        machine: Machine,
    ) -> anyhow::Result<Self> {
        if !self.config.writes() {
            return Ok(self);
        }
        self.options = options;
        if options.index {
            let (put_off, warn) = (Arc::clone(&self.put_off), Arc::clone(&machine.warn));
            self.indexer = Some(Indexer::new(put_off, warn));
        }
        if options.compress {
            let put_off = Arc::clone(&self.put_off);
            self.archiver = Some(Archiver::start(self.archived_log(), put_off, machine)?);
            self.report_compress_without_effect();
        }
        Ok(self)
    }

    /// The log, for the archiver.
    pub(super) fn archived_log(&self) -> ArchivedLog {
        ArchivedLog {
            path: self.config.path.clone(),
            limits: self.config.space_limits(),
        }
    }

    /// Reports settings that leave `compress` without effect.
    pub(super) fn report_compress_without_effect(&mut self) {
        let conf = self.config.conf.as_ref();
        if let Some(text) = conf.and_then(|conf| self.options.without_effect(conf)) {
            self.system.syslog(SyslogSeverity::Notice, &text);
        }
    }

    /// Changes of names that the archiver asks for.
    pub(crate) fn archiver_requests(&self) -> Receiver<NameRequest> {
        self.archiver
            .as_ref()
            .map_or_else(never, Archiver::requests)
    }

    /// Changes names for the archiver.
    pub(crate) fn answer_archiver(&mut self, request: &NameRequest) {
        let (directory, name) = (&self.directory, &self.name);
        let group = self.config.group().unwrap_or(0);
        let result = match request.change {
            _ if request.log != self.config.path => {
                Err(std::io::Error::other("the log has another path now"))
            }
            NameChange::NameArchive => match archiver::temporary_name(name) {
                Some(temporary) => {
                    let before = self.last_archive;
                    rotate::name_archive(directory, name, &temporary, group, before)
                        .map(|number| self.last_archive = number)
                }
                None => Ok(()),
            },
            NameChange::RemoveOldLog(FileId { device, inode, .. }) => {
                rotate::remove_old_log(directory, name, (device, inode))
            }
        };
        if result.is_ok() {
            self.archived_twice = u32::from(request.change == NameChange::NameArchive);
        }
        self.remove_excess();
        // The archiver may have ended.
        let _gone = request.to.try_send(result);
    }

    /// An old log and its archive count as one; the old log may have been removed meanwhile.
    pub(super) fn recount_archived_twice(&mut self) {
        if self.archived_twice > 0 {
            self.archived_twice = rotate::archived_twice(&self.config.path);
        }
    }
}
