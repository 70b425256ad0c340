//! What is installed beside the program: the unit that systemd starts it by.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::daemon::{Asked, program};
use super::harness::needs;
use super::place::Place;

const VERIFY: &str = "/usr/bin/systemd-analyze";
const UNIT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/tollgate.service"
);

pub(crate) fn the_unit_is_right() {
    needs(
        Path::new(VERIFY).exists(),
        "systemd-analyze, of Debian's package systemd",
    );
    let place = Place::new();
    let unit = fs::read_to_string(UNIT).unwrap();
    // The program need not be installed here.
    let installed = "/usr/sbin/tollgate";
    assert!(unit.contains(installed));
    let here = place.own.join("tollgate.service");
    fs::write(&here, unit.replace(installed, program().to_str().unwrap())).unwrap();
    let mut verify = Command::new(VERIFY);
    let verified = Asked::of(verify.args(["verify", "--man=no"]).arg(&here));
    // What is wrong with other units of this machine is said as well.
    let about: Vec<&str> = verified
        .said
        .lines()
        .filter(|line| line.contains("tollgate"))
        .collect();
    assert!(about.is_empty(), "{about:?}");
    // A mistake would have been found.
    fs::write(&here, unit.replace("Type=notify", "Type=notice")).unwrap();
    let mut verify = Command::new(VERIFY);
    let verified = Asked::of(verify.args(["verify", "--man=no"]).arg(&here));
    assert!(verified.said.contains("tollgate.service"), "{verified:?}");
}
