// SPDX-License-Identifier: Apache-2.0
// Errors: the library's status and sentence, and what a callback said or a report contained.
use crate::callbacks;
use crate::{Report, Status};
use gradscaler_sys as sys;
use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
/// What a callback may fail with.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failed call. Nothing has changed, unless the function documents an exception.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: Status,
    message: String,
    place: Place,
    report: Option<Report>,
    source: Option<Cause>,
}

/// What a failure was about, in fields. Empty where it was not about one, or the crate itself refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The function of the C interface that failed.
    pub function: String,
    /// The parameter, by its name in `gradscaler.h`.
    pub argument: String,
    /// The member, if the argument or an entry of it is a struct: "init_scale".
    pub field: String,
    /// The entry of an array other than tensors: slot of `state`, group of `device_lr`.
    pub index: Option<usize>,
    /// The tensor in a list.
    pub tensor: Option<usize>,
}

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        let inner = Inner { status, message: message.into(), place: Place::default(), report: None, source: None };
        Error(Box::new(inner))
    }

    pub(crate) fn with_report(mut self, report: Report) -> Self {
        self.0.report = Some(report);
        self
    }

    pub(crate) fn with_source(mut self, source: Option<Cause>) -> Self {
        self.0.source = source;
        self
    }

    /// The kind of failure.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// One sentence that names the function, the argument and, for tensors, the index.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What it was about, in fields.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// The report that was asked for, if the status is [`Status::ScaleFloor`] or [`Status::Spikes`].
    pub fn report(&self) -> Option<&Report> {
        self.0.report.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// A string of the library's, copied.
pub(crate) fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Judges the status of the call that this thread made last. A panic of a callback's goes on here.
pub(crate) fn check(api: &sys::gsc_api, status: sys::gsc_status) -> Result<()> {
    callbacks::resume_panic();
    if status == sys::GSC_OK {
        return Ok(());
    }
    let message = text(unsafe { (api.error_get_message)() });
    // A status of a later library must still become an error.
    let mut error = Error::new(Status::try_from(status).unwrap_or(Status::Internal), message);
    let mut last = empty!(gsc_error);
    if unsafe { (api.error_get_last)(&mut last) } == sys::GSC_OK {
        error.0.place = Place {
            function: text(last.function),
            argument: text(last.argument),
            field: text(last.field),
            index: usize::try_from(last.index).ok(),
            tensor: usize::try_from(last.tensor).ok(),
        };
    }
    Err(error)
}
