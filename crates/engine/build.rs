//! Builds the BPF objects with clang 19 and generates their skeletons.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// Paths in debug information are relative, so that objects are the same in every directory.
const ARGS: [&str; 9] = [
    "-mcpu=v3",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror",
    "-Ibpf",
    "-fdebug-compilation-dir=.",
];

/// Lets a skeleton find its object without the name of the directory: debug information has a checksum of the skeleton, on
/// which the build ids of programs depend.
fn name_object_relatively(family: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (object, skeleton) = (
        family.with_extension("bpf.o"),
        family.with_extension("skel.rs"),
    );
    let name = object.file_name().ok_or("an object has a name")?;
    let text = fs::read_to_string(&skeleton)?;
    let relative = text.replace(
        &format!("{object:?}"),
        &format!("concat!(env!(\"OUT_DIR\"), \"/{}\")", name.display()),
    );
    if relative == text {
        return Err(format!("{} does not name its object", skeleton.display()).into());
    }
    Ok(fs::write(&skeleton, relative)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let target = match arch.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        _ => return Err(format!("the BPF programs know no registers of {arch}").into()),
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for family in [
        "syscall",
        "preemption_mode",
        "abi",
        "filter_test",
        "slots_test",
    ] {
        SkeletonBuilder::new()
            .source(format!("bpf/{family}.bpf.c"))
            .obj(out.join(format!("{family}.bpf.o")))
            .clang(&clang)
            .clang_args(ARGS.into_iter().chain([target]))
            .reference_obj(true)
            .build_and_generate(out.join(format!("{family}.skel.rs")))
            .map_err(|error| {
                format!("cannot build bpf/{family}.bpf.c with {}: {error:#}; `make setup` installs clang 19", clang.display())
            })?;
        name_object_relatively(&out.join(family))?;
    }
    // A daemon adopts pinned programs and maps only when they are of the same object.
    let mut hasher = DefaultHasher::new();
    fs::read(out.join("syscall.bpf.o"))?.hash(&mut hasher);
    println!("cargo::rustc-env=TOLLGATE_OBJECT={:016x}", hasher.finish());
    Ok(())
}
