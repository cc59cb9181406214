// SPDX-License-Identifier: Apache-2.0
// A mark on every list of gradients while a call uses it. The borrow checker sees the list that a call is given; it
// does not see that `GradScaler::update` uses the lists of its iteration, which may be on another thread by then. The
// mark turns that race into an error.
use crate::{Error, Result, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct InUse(AtomicBool);

impl InUse {
    fn try_enter(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    fn leave(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The lists of a call, marked as long as it lives.
pub(crate) struct Entered<'a>(&'a [Arc<InUse>]);

impl<'a> Entered<'a> {
    pub(crate) fn new(lists: &'a [Arc<InUse>]) -> Result<Self> {
        match lists.iter().position(|list| !list.try_enter()) {
            None => Ok(Entered(lists)),
            Some(taken) => {
                drop(Entered(&lists[..taken]));
                Err(Error::new(
                    Status::BadState,
                    "a list of gradients is in use by a call that has not returned, of another thread or of the \
                     callback's own",
                ))
            }
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|list| list.leave());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_in_one_call_at_a_time() {
        let lists = [Arc::default(), Arc::default(), Arc::default()];
        let second = Entered::new(&lists[1..2]).unwrap();
        let error = Entered::new(&lists).err().expect("the second is taken");
        assert_eq!(error.status(), Status::BadState);
        // Of those that were free none has stayed marked.
        drop(Entered::new(&lists[..1]).unwrap());
        drop(Entered::new(&lists[2..]).unwrap());
        drop(second);
        Entered::new(&lists).unwrap();
    }
}
