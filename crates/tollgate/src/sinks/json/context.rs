//! Context of an event beyond its records: paths of objects, parent and container of the task.
//!
//! It travels to the JSON log and to viewers as a record in front of those of its event. No other log has it.

use audit::event::{Event, NameSource, TaskContext};
use audit::ids::MsgType;
use audit::record::decode::Record;
use audit::record::{encode, quote};
use bstr::ByteSlice as _;
use serde_json::{Map, Value, json};

use logs::event_context::{USER_NAMES, numbers};
use logs::json::text;

/// The last record type of a syscall event: the kernel has no record of this type, and relays none from programs.
const KIND: MsgType = MsgType(1499);
/// Length of identifiers of container runtimes.
const ID_DIGITS: usize = 64;

/// Records for the JSON log, or for viewers.
#[derive(Debug, Default)]
pub(crate) struct JsonRecords {
    pub(crate) text: Vec<u8>,
    /// Number of events; an event that continues in the next batch counts twice.
    pub(crate) events: u64,
    body: Vec<u8>,
}

impl JsonRecords {
    /// Appends an event: the context, then its records.
    pub(crate) fn event(&mut self, event: &Event<'_>, records: &[u8]) {
        self.begin_context(event);
        self.end_event(event, records);
    }

    /// Appends an event for viewers, which also get the origin of its names.
    pub(crate) fn event_for_viewers(&mut self, event: &Event<'_>, records: &[u8]) {
        self.begin_context(event);
        let mut separator = None;
        for (number, item) in event.items.iter().enumerate() {
            if item.source == NameSource::User {
                match separator {
                    Some(separator) => self.body.push(separator),
                    None => {
                        let blank = if self.body.is_empty() { "" } else { " " };
                        self.body.extend_from_slice(blank.as_bytes());
                        self.body.extend_from_slice(USER_NAMES);
                        self.body.push(b'=');
                    }
                }
                separator = Some(b',');
                let mut digits = itoa::Buffer::new();
                self.body
                    .extend_from_slice(digits.format(number).as_bytes());
            }
        }
        self.end_event(event, records);
    }

    /// Starts the context record.
    fn begin_context(&mut self, event: &Event<'_>) {
        self.body.clear();
        let mut put = |name: &[u8], value: &[u8]| {
            if !self.body.is_empty() {
                self.body.push(b' ');
            }
            self.body.extend_from_slice(name);
            self.body.push(b'=');
            quote::untrusted(value, &mut self.body);
        };
        if let Some(TaskContext {
            parent_comm,
            cgroup,
        }) = event.task_context
        {
            put(b"parent_comm", parent_comm);
            put(b"cgroup", cgroup);
        }
        for (number, item) in event.items.iter().enumerate() {
            if let Some(path) = item.path {
                put(itoa::Buffer::new().format(number).as_bytes(), path);
            }
        }
    }

    fn end_event(&mut self, event: &Event<'_>, records: &[u8]) {
        if !self.body.is_empty() {
            encode::message(KIND, event.time, event.serial, &self.body, &mut self.text);
        }
        self.text.extend_from_slice(records);
        self.events += 1;
    }

    /// Appends a kernel record line; `begins` tells whether it starts an event.
    pub(crate) fn message(&mut self, line: &[u8], begins: bool) {
        self.text.extend_from_slice(line);
        self.events += u64::from(begins);
    }

    /// Clears the text and keeps its capacity.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.events = 0;
    }
}

/// Adds the context to the object of its event, and to its PATH objects.
pub(super) fn put(record: &Record<'_>, object: &mut Map<String, Value>) {
    for field in record.fields().flatten() {
        if field.name == USER_NAMES {
            for number in numbers(field.value) {
                if let Some(path) = path_object(object, number) {
                    path.insert("source".to_owned(), json!("user"));
                }
            }
            continue;
        }
        let Ok(value) = quote::unquote(field.value) else {
            continue;
        };
        match field.name.as_bytes() {
            b"parent_comm" => parent(&value, object),
            b"cgroup" => group(&value, object),
            number => {
                let number = number.to_str().ok().and_then(|text| text.parse().ok());
                if let Some(path) = number.and_then(|number| path_object(object, number)) {
                    path.insert("path".to_owned(), text(&value));
                }
            }
        }
    }
}

/// The PATH object with this number.
fn path_object(object: &mut Map<String, Value>, number: usize) -> Option<&mut Map<String, Value>> {
    let paths = object.get_mut("path")?.as_array_mut()?;
    paths.get_mut(number)?.as_object_mut()
}

/// The same for an event in memory.
pub(super) fn background(background: &TaskContext<'_>, object: &mut Map<String, Value>) {
    parent(background.parent_comm, object);
    group(background.cgroup, object);
}

fn parent(comm: &[u8], object: &mut Map<String, Value>) {
    object.insert("parent".to_owned(), json!({ "comm": text(comm) }));
}

fn group(cgroup: &[u8], object: &mut Map<String, Value>) {
    object.insert("cgroup".to_owned(), text(cgroup));
    if let Some((runtime, id)) = container(cgroup) {
        let mut container = json!({ "id": id });
        if let (Some(members), Some(runtime)) = (container.as_object_mut(), runtime) {
            members.insert("runtime".to_owned(), json!(runtime));
        }
        object.insert("container".to_owned(), container);
    }
}

/// The container of a control group: its runtime, if the path names it, and its identifier. The outermost one if
/// several components look like containers: who may make control groups in a container chooses their names.
fn container(cgroup: &[u8]) -> Option<(Option<&str>, &str)> {
    let cgroup = cgroup.to_str().ok()?;
    let mut above = "";
    for component in cgroup.split('/') {
        if let Some(name) = component.strip_prefix("lxc.payload.") {
            return Some((Some("lxc"), name));
        }
        let part = component.strip_suffix(".scope").unwrap_or(component);
        let (prefix, id) = match part.rsplit_once('-') {
            Some((prefix, id)) => (Some(prefix), id),
            None => (None, part),
        };
        let is_id = id.len() == ID_DIGITS
            && id
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_id {
            let above = (above == "docker").then_some(above);
            return Some((prefix.or(above), id));
        }
        above = component;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_control_group_does_not_rename_its_container() {
        let (id, other) = ("0123456789abcdef".repeat(4), "f".repeat(64));
        for inner in [
            format!("podman-{other}.scope"),
            format!("docker/{other}"),
            "lxc.payload.other".to_owned(),
        ] {
            let group = format!("/system.slice/docker-{id}.scope/{inner}");
            let found = container(group.as_bytes());
            assert_eq!(found, Some((Some("docker"), &*id)), "{group}");
        }
    }

    #[test]
    fn containers_are_found_by_their_control_groups() {
        let id = "0123456789abcdef".repeat(4);
        for (group, runtime) in [
            (format!("/system.slice/docker-{id}.scope"), Some("docker")),
            (format!("/docker/{id}"), Some("docker")),
            (format!("/docker/{id}/init.scope"), Some("docker")),
            (
                format!("/kubepods.slice/kubepods-besteffort.slice/cri-containerd-{id}.scope"),
                Some("cri-containerd"),
            ),
            (
                format!("/machine.slice/libpod-{id}.scope/container"),
                Some("libpod"),
            ),
            (format!("/kubepods/besteffort/pod1/{id}"), None),
        ] {
            assert_eq!(
                container(group.as_bytes()),
                Some((runtime, &*id)),
                "{group}"
            );
        }
        assert_eq!(
            container(b"/lxc.payload.web/system.slice"),
            Some((Some("lxc"), "web"))
        );
        for group in ["/", "/user.slice/user-0.slice/session-1.scope", "/docker/x"] {
            assert_eq!(container(group.as_bytes()), None, "{group}");
        }
        assert_eq!(container(b"/\xff"), None);
    }
}
