// SPDX-License-Identifier: Apache-2.0
// Makes the code that both crates take from gradscaler.h, by scripts/gen-api; a published crate has it in generated/.
// With the feature `link`: where the library is. GRADSCALER_LIB_DIR names its folder; otherwise pkg-config is asked.
// The folder is not written into the program: the system's loader has to find the library, as any other.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = generated();
    println!("cargo:rustc-env=GRADSCALER_GENERATED={}", folder.display());
    println!("cargo:generated={}", folder.display()); // for the build of gradscaler
                                                      // docs.rs has no library, and links nothing.
    if env::var_os("CARGO_FEATURE_LINK").is_some() && env::var_os("DOCS_RS").is_none() {
        link();
    }
}

fn generated() -> PathBuf {
    let published = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("generated");
    if published.exists() {
        return published;
    }
    let root = fs::canonicalize("../../..").unwrap();
    let script = root.join("scripts/gen-api");
    assert!(script.exists(), "neither generated/ nor {} is here", script.display());
    let sources = [
        "scripts/gen-api",
        "bindings/generate",
        "include/gradscaler/gradscaler.h",
        "capi/functions.txt",
        "tests/abi/layout.inc",
    ];
    for source in sources {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for python in ["python3", "python"] {
        if let Ok(status) = Command::new(python).arg("-B").arg(&script).arg("--rust").arg(&folder).status() {
            assert!(status.success(), "{} --rust failed", script.display());
            return folder;
        }
    }
    panic!(
        "a build from the repository takes Python 3.10: {} makes a part of the crates, and python3 was not found",
        script.display()
    );
}

fn link() {
    println!("cargo:rustc-link-lib=dylib=gradscaler");
    println!("cargo:rerun-if-env-changed=GRADSCALER_LIB_DIR");
    if let Ok(folder) = env::var("GRADSCALER_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        return;
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let pkg_config = Command::new("pkg-config").args(["--libs-only-L", "gradscaler"]).output();
    match pkg_config {
        Ok(output) if output.status.success() => {
            let flags = String::from_utf8_lossy(&output.stdout).into_owned();
            for folder in flags.split_whitespace().filter_map(|flag| flag.strip_prefix("-L")) {
                println!("cargo:rustc-link-search=native={folder}");
            }
        }
        // The linker may know where it is.
        _ => println!(
            "cargo:warning=GRADSCALER_LIB_DIR is not set and pkg-config does not know gradscaler: \
             if the linker does not find it either, set GRADSCALER_LIB_DIR to the folder of libgradscaler"
        ),
    }
}
