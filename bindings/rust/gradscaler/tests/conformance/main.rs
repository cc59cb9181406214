// SPDX-License-Identifier: Apache-2.0
// The files under tests/conformance that every language runs: scenarios, recordings of other systems, bad input.
mod bad_calls;
mod files;
mod goldens;
mod json;
mod scenarios;
mod world;
