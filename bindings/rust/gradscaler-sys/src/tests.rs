// SPDX-License-Identifier: Apache-2.0
// What the compiler makes of the declarations, against the numbers that compiled C programs have inside them; and what
// is said of a library that cannot be loaded.
use super::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The lines of tests/abi/layout.inc as (macro, arguments), of sizes and offsets after the name of their struct.
fn recorded() -> Vec<(String, Vec<String>)> {
    let root = env::var_os("GRADSCALER_SOURCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."),
        PathBuf::from,
    );
    let text = fs::read_to_string(root.join("tests/abi/layout.inc")).expect("tests/abi/layout.inc");
    let mut structure = "";
    let mut found = Vec::new();
    for line in text.lines() {
        structure = line
            .strip_prefix("#define GSC_STRUCT ")
            .unwrap_or(structure);
        let entry = line
            .strip_prefix("GSC_LAYOUT_")
            .and_then(|line| line.strip_suffix(')')?.split_once('('));
        if let Some((name, rest)) = entry {
            let of_struct = (name != "VALUE").then_some(structure);
            let arguments = of_struct.into_iter().chain(rest.split(", "));
            found.push((name.to_owned(), arguments.map(str::to_owned).collect()));
        }
    }
    found
}

fn number(text: &str) -> i64 {
    let text = text.trim_end_matches('u');
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).expect(text),
        None => text.parse().expect(text),
    }
}

#[test]
#[cfg(target_pointer_width = "64")]
fn structs_have_the_recorded_layout() {
    let mut offsets = HashMap::new();
    let mut sizes = HashMap::new();
    for (structure, field, offset, size) in bindings::layout() {
        offsets.insert((structure.to_owned(), field.to_owned()), offset as i64);
        sizes.insert(structure.to_owned(), size as i64);
    }
    let mut seen = 0;
    for (kind, arguments) in recorded() {
        let key = (
            arguments[0].clone(),
            arguments.get(1).cloned().unwrap_or_default(),
        );
        match kind.as_str() {
            "SIZE" => assert_eq!(sizes.get(&key.0), Some(&number(&key.1)), "{:?}", arguments),
            "FIELD" => assert_eq!(
                offsets.get(&key),
                Some(&number(&arguments[2])),
                "{:?}",
                arguments
            ),
            _ => continue,
        }
        offsets.remove(&key);
        seen += 1;
    }
    // Of the table the first and last fields are recorded; it has no gaps.
    offsets.retain(|(structure, _), _| structure != "gsc_api");
    assert!(offsets.is_empty(), "not recorded: {:?}", offsets);
    assert!(seen > 100);
}

#[test]
fn constants_have_the_recorded_values() {
    let text = include_str!("bindings.rs");
    let constants: HashMap<&str, i64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';'))
        .map(|line| {
            let (name, rest) = line.split_once(':').expect("a type");
            (name, number(rest.split_once("= ").expect("a value").1))
        })
        .collect();
    let mut seen = 0;
    for (_, arguments) in recorded().iter().filter(|(kind, _)| kind == "VALUE") {
        assert_eq!(
            constants.get(arguments[0].as_str()),
            Some(&number(&arguments[1])),
            "{:?}",
            arguments
        );
        seen += 1;
    }
    assert!(seen > 50);
}

#[test]
fn what_cannot_be_loaded_is_named() {
    let error = load(Some(Path::new("/nowhere/libgradscaler.so.1")))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot load gradscaler; tried \"/nowhere/libgradscaler.so.1\": "),
        "{}",
        error
    );
    assert!(
        error.contains("No such file") || cfg!(not(target_os = "linux")),
        "{}",
        error
    );
}

/// In a process of its own, whose environment is wrong.
#[test]
#[cfg(target_os = "linux")]
fn without_a_path_the_environment_variable_is_named() {
    const WRONG: &str = "/nowhere/libgradscaler.so.1";
    if std::env::var("GRADSCALER_LIBRARY").as_deref() == Ok(WRONG) {
        if let Err(error) = load(None) {
            println!("{}", error);
        }
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "without_a_path_the_environment_variable_is_named",
            "--nocapture",
        ])
        .env("GRADSCALER_LIBRARY", WRONG)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    if !said.contains("cannot load gradscaler") {
        return; // It is installed on this system.
    }
    assert!(
        said.contains("; the environment variable GRADSCALER_LIBRARY can name the file"),
        "{}",
        said
    );
}

#[test]
#[cfg(target_os = "linux")]
fn another_library_is_refused() {
    let error = load(Some(Path::new("libc.so.6"))).unwrap_err().to_string();
    assert!(
        error.ends_with("not gradscaler: it has no gsc_library_get_api"),
        "{}",
        error
    );
}

#[test]
fn a_shorter_table_is_refused() {
    let mut short = *load(None).unwrap();
    short.struct_size -= 8;
    let short: &'static gsc_api = Box::leak(Box::new(short));
    assert!(load::from_table(short)
        .unwrap_err()
        .starts_with("it is older than this crate"));
    assert_eq!(
        load::from_table(core::ptr::null()).unwrap_err(),
        "it does not provide ABI 1"
    );
}

#[test]
fn the_same_library_has_the_same_table() {
    assert!(core::ptr::eq(load(None).unwrap(), load(None).unwrap()));
}
