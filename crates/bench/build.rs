//! Compiles the `io_uring` workload, a C program that `src/workload.rs` embeds.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/workload_uring.c";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // A cross compiler of Debian when this is built for another machine.
    let native = if env::var("TARGET")? == env::var("HOST")? {
        "cc".to_owned()
    } else {
        format!("{}-linux-gnu-gcc", env::var("CARGO_CFG_TARGET_ARCH")?)
    };
    let compiler = env::var_os("CC").unwrap_or_else(|| native.into());
    let status = Command::new(&compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(out.join("workload-uring"))
        .arg(SOURCE)
        .status()
        .map_err(|error| format!("cannot run `{}`: {error}", compiler.display()))?;
    if !status.success() {
        return Err(format!("`{}` cannot compile {SOURCE}: {status}", compiler.display()).into());
    }
    Ok(())
}
