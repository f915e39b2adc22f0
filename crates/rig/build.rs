//! Compiles the clock shim (`shim/shim.rs`) for the target, to be embedded into the library. With
//! the compiler that is there anyway: no C compiler, and `core` is all that it needs.
//!
//! Where that is impossible the library is built all the same, and says why clocks cannot be set.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::Path,
    process::{Command, Output},
};

const SOURCES: [&str; 4] = ["build.rs", "shim/shim.rs", "shim/kernel.rs", "src/clock/setting.rs"];

/// What `src/clock.rs` includes.
const EMBEDDED: &str = r#"Ok(include_bytes!(concat!(env!("OUT_DIR"), "/clock.so")))"#;

/// Of what the compiler complains about: a failed link lists a page of files.
const MOST_LINES: usize = 12;

fn main() -> io::Result<()> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let out = variable("OUT_DIR");
    let out = Path::new(&out);
    let shim = match compile(&out.join("clock.so")) {
        Ok(()) => EMBEDDED.to_owned(),
        Err(why) => format!("Err({why:?})"),
    };
    fs::write(out.join("shim.rs"), shim)
}

/// The error says why there is no shim.
fn compile(into: &Path) -> Result<(), String> {
    let target = variable("TARGET");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    if variable("CARGO_CFG_TARGET_OS") != "linux"
        || variable("CARGO_CFG_TARGET_POINTER_WIDTH") != "64"
        || !["x86_64", "aarch64"].contains(&arch.as_str())
    {
        return Err(format!("that needs Linux on x86-64 or aarch64, and this is {target}"));
    }
    let mut first = ["link-arg=-nostdlib", "link-arg=-nostartfiles"].map(OsString::from).to_vec();
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        first.push("linker=".into());
        first[2].push(linker);
    }
    // For another architecture the linker of this one is no use; the compiler brings one for all.
    let second = ["linker=rust-lld", "linker-flavor=ld.lld"].map(OsString::from);
    let Err(why) = rustc(&target, into, &first) else { return Ok(()) };
    if rustc(&target, into, &second).is_ok() {
        return Ok(());
    }
    println!("cargo::warning=the clock shim was not compiled, so clocks cannot be set:");
    for line in why.lines().filter(|line| !line.trim().is_empty()).take(MOST_LINES) {
        println!("cargo::warning={line}");
    }
    let first = why.lines().next().unwrap_or("no reason given");
    Err(format!("the shim was not compiled for {target}: {first}"))
}

/// Compiles it once. The error is what the compiler complained about.
fn rustc(target: &str, into: &Path, linking: &[OsString]) -> Result<(), String> {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=clock"]);
    rustc.args(["--target", target]).arg("-o").arg(into).arg("shim/shim.rs");
    // A musl target links statically by default, and then has no shared libraries.
    for option in ["panic=abort", "opt-level=2", "strip=symbols", "target-feature=-crt-static"] {
        rustc.args(["-C", option]);
    }
    for option in linking {
        rustc.arg("-C").arg(option);
    }
    match rustc.output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A variable that cargo sets for every build script.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
