//! Compiles `src/program/program.c` for each entry of the kernel; `src/program.rs` embeds the results.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/program/program.c";
const SCRIPT: &str = "src/program/program.ld";

/// One build of the program.
struct Variant {
    name: &'static str,
    /// The compiler; `None` is that of the environment variable `CC`.
    compiler: Option<&'static str>,
    options: &'static [&'static str],
}

/// Variants for x86-64.
const X86_64: &[Variant] = &[
    Variant {
        name: "program-syscall",
        compiler: None,
        options: &["-m64", "-fcf-protection=none"],
    },
    Variant {
        name: "program-int80",
        compiler: None,
        options: &["-m64", "-fcf-protection=none", "-DINT80"],
    },
    Variant {
        name: "program-narrow",
        compiler: None,
        options: &["-m32", "-fcf-protection=none"],
    },
];

/// Variants for arm64, which no host compiler builds.
const AARCH64: &[Variant] = &[
    Variant {
        name: "program-syscall",
        compiler: Some("aarch64-linux-gnu-gcc"),
        options: &["-mno-outline-atomics"],
    },
    Variant {
        name: "program-narrow",
        compiler: Some("arm-linux-gnueabihf-gcc"),
        options: &["-marm"],
    },
];

/// No C library, no dynamic linking, and no code that the compiler adds for unwinding or hardening.
const OPTIONS: [&str; 16] = [
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
    let native = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let variants = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "aarch64" => AARCH64,
        _ => X86_64,
    };
    for Variant {
        name,
        compiler,
        options,
    } in variants
    {
        let compiler = compiler.map_or_else(|| native.clone(), OsString::from);
        let status = Command::new(&compiler)
            .args(OPTIONS)
            .args(*options)
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
