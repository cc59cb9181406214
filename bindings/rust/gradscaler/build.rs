// SPDX-License-Identifier: Apache-2.0
// Passes on where gradscaler-sys has the code that both crates take from gradscaler.h.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=GRADSCALER_GENERATED={}", std::env::var("DEP_GRADSCALER_GENERATED").unwrap());
}
