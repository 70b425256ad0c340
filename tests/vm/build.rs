//! Compiles `src/program/program.c` for each entry of the kernel; `src/program.rs` embeds the results.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/program/program.c";
const SCRIPT: &str = "src/program/program.ld";

/// Name and options of each variant.
const VARIANTS: [(&str, &[&str]); 3] = [
    ("program-syscall", &["-m64"]),
    ("program-int80", &["-m64", "-DINT80"]),
    ("program-i386", &["-m32"]),
];

/// No C library, no dynamic linking, and no code that the compiler adds for unwinding or hardening.
const OPTIONS: [&str; 17] = [
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-pic",
    "-no-pie",
    "-fomit-frame-pointer",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-nostdlib",
    "-static",
    "-s",
    "-Wl,--build-id=none",
    "-Wl,--no-warn-rwx-segments",
    "-Wl,-z,max-page-size=4096",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={SCRIPT}");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    for (name, options) in VARIANTS {
        let status = Command::new(&compiler)
            .args(OPTIONS)
            .args(options)
            .arg(format!("-Wl,-T,{SCRIPT}"))
            .arg("-o")
            .arg(out.join(name))
            .arg(SOURCE)
            .status()
            .map_err(|error| format!("cannot run `{}`: {error}", compiler.display()))?;
        if !status.success() {
            let compiler = compiler.display();
            return Err(format!("`{compiler}` cannot compile {name}: {status}").into());
        }
    }
    Ok(())
}
