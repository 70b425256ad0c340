//! Plugins: programs that receive events.
//!
//! ```text
//! tlg-log ---> Dispatcher ---> queue of each plugin ---> tlg-plugin ---> its standard input
//! ```
//!
//! [`chunk`] has the wire format of plugins, [`plugin_queue`] the queue and thread of each plugin, [`process`]
//! plugins that are programs, [`socket`] the built-in socket plugin, [`plugin_losses`] the loss counters.

mod chunk;
mod plugin_losses;
mod plugin_queue;
mod process;
mod socket;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use audit::conf::auditd::Settings;
use audit::conf::plugin::Plugin;

use crate::config::plugins::read_all;
use crate::helper::HelperClient;
use crate::messages::{self, print_findings, warn};
use chunk::Chunk;
pub(crate) use chunk::LineFormat;
pub(crate) use plugin_losses::{PluginLoss, PluginLosses};
pub(crate) use plugin_queue::Loss;
use plugin_queue::PluginQueue;

/// Time for plugins to drain their queues at the end.
const PATIENCE: Duration = Duration::from_secs(3);
/// All plugins.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    queues: Vec<PluginQueue>,
    /// Threads of plugins that are stopping.
    stopping: Vec<JoinHandle<()>>,
    losses: Arc<PluginLosses>,
    /// Whether plugins get nothing until USR2.
    suspended: bool,
    /// Starts programs.
    helper: Option<HelperClient>,
}

impl Dispatcher {
    /// Starts the configured plugins. A plugin that cannot start is reported; the others run.
    pub(crate) fn start(settings: &Settings, helper: Option<HelperClient>) -> Self {
        let mut dispatcher = Self {
            helper,
            ..Self::default()
        };
        dispatcher.configure(settings);
        dispatcher
    }

    /// Whether there are no plugins.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// Dispatches whole events to all plugins. Returns the names of plugins whose queue became full.
    pub(crate) fn push(&mut self, log: &[u8], lines: LineFormat, events: u64) -> Vec<String> {
        if self.suspended {
            for queue in &self.queues {
                queue.count_lost(Loss::Suspended, events);
            }
            return Vec::new();
        }
        let chunk = Arc::new(Chunk::new(log, lines, events));
        let mut full = Vec::new();
        for queue in &mut self.queues {
            if !queue.push(&chunk) && !std::mem::replace(&mut queue.reported, true) {
                full.push(queue.name.clone());
            }
        }
        full
    }

    /// Stops dispatching until [`Dispatcher::resume`].
    pub(crate) const fn suspend(&mut self) {
        self.suspended = true;
    }

    /// Resumes dispatching.
    pub(crate) const fn resume(&mut self) {
        self.suspended = false;
    }

    /// Stops plugins whose configuration changed, sends SIGHUP to the others, and starts new ones.
    pub(crate) fn configure(&mut self, settings: &Settings) {
        let mut active_plugins = active_plugins(settings);
        let until = Instant::now() + PATIENCE;
        self.stopping.retain(|thread| !thread.is_finished());
        let (restarts, depth) = (settings.max_restarts, settings.q_depth);
        for mut queue in std::mem::take(&mut self.queues) {
            let same = active_plugins
                .iter()
                .position(|(name, plugin)| *name == queue.name && *plugin == queue.plugin);
            if let Some(at) = same {
                active_plugins.remove(at);
                queue.reconfigure(restarts, depth);
                self.queues.push(queue);
            } else {
                // Does not wait here: events continue.
                self.stopping.push(queue.stop(until));
            }
        }
        for (name, plugin) in active_plugins {
            match PluginQueue::start(&name, plugin, restarts, depth, self.helper.as_ref()) {
                Ok(queue) => {
                    self.losses.add(&name, queue.shared());
                    self.queues.push(queue);
                }
                Err(error) => {
                    let advice = messages::permission_hint(&error);
                    warn(&format!("plugin {name} is not started: {error:#}{advice}"));
                }
            }
        }
    }

    /// Loss counters of plugins.
    pub(crate) fn losses(&self) -> Arc<PluginLosses> {
        Arc::clone(&self.losses)
    }

    /// Lines of the state report.
    pub(crate) fn report(&self, q_depth: u32) -> String {
        let queues: Vec<(usize, usize)> = self.queues.iter().map(PluginQueue::queue).collect();
        let now = queues.iter().map(|(now, _)| *now).max().unwrap_or(0);
        let deepest = queues.iter().map(|(_, most)| *most).max().unwrap_or(0);
        let lost = self.queues.iter().any(|queue| queue.lost() != 0);
        let yes_no = |is: bool| if is { "yes" } else { "no" };
        let mut text = format!(
            "Number of active plugins = {}\ncurrent plugin queue depth = {now}\n\
             max plugin queue depth used = {deepest}\nplugin queue size = {q_depth}\n\
             plugin queue overflow detected = {}\n\
             plugin queueing suspended = {}\n",
            self.queues.len(),
            yes_no(lost),
            yes_no(self.suspended)
        );
        for queue in &self.queues {
            // Writing to a string cannot fail.
            let _ok = writeln!(text, "plugin {} lost = {}", queue.name, queue.lost());
        }
        text
    }

    /// Lets plugins drain their queues in parallel, then stops them.
    pub(crate) fn end(&mut self) {
        let until = Instant::now() + PATIENCE;
        let queues = std::mem::take(&mut self.queues);
        self.stopping
            .extend(queues.into_iter().map(|queue| queue.stop(until)));
        for thread in std::mem::take(&mut self.stopping) {
            let _panicked = thread.join();
        }
    }
}

/// Active plugins by file name. A plugin with an invalid file is reported and skipped.
fn active_plugins(settings: &Settings) -> Vec<(String, Plugin)> {
    let mut active_plugins = Vec::new();
    for (name, read) in read_all(settings) {
        match read {
            Ok(read) => {
                print_findings(&read.file);
                if !read.is_valid() {
                    warn(&format!(
                        "plugin {name} is not started: correct the errors above in its file"
                    ));
                } else if read.settings.active {
                    active_plugins.push((name, read.settings));
                }
            }
            Err(error) => warn(&format!("plugin {name} is not started: {error:#}")),
        }
    }
    active_plugins
}

/// Directories of plugin sockets.
pub(crate) fn socket_directories(settings: &Settings) -> Vec<PathBuf> {
    read_all(settings)
        .into_iter()
        .filter_map(|(_, read)| socket::directory(&read.ok()?.settings))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reconfigured_socket_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let write = |format: &str| {
            let at = socket.display();
            let text = format!("active = yes\npath = builtin_af_unix\nargs = 0600 {at} {format}\n");
            fs::write(directory.path().join("a.conf"), text).unwrap();
        };
        let settings = Settings {
            plugin_dir: directory.path().to_str().unwrap().into(),
            ..Settings::default()
        };
        write("string");
        let mut dispatcher = Dispatcher::start(&settings, None);
        write("binary");
        dispatcher.configure(&settings);
        assert_eq!((dispatcher.queues.len(), dispatcher.stopping.len()), (1, 1));
        for thread in std::mem::take(&mut dispatcher.stopping) {
            thread.join().unwrap();
        }
        assert!(socket.exists());
        dispatcher.end();
        assert!(!socket.exists());
    }
}
