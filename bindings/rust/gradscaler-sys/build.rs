// SPDX-License-Identifier: Apache-2.0
// With the feature `link`: where the library is. GRADSCALER_LIB_DIR names its folder; otherwise pkg-config is asked.
// The folder is not written into the program: the system's loader has to find the library, as any other.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // docs.rs has no library, and links nothing.
    if env::var_os("CARGO_FEATURE_LINK").is_some() && env::var_os("DOCS_RS").is_none() {
        link();
    }
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
