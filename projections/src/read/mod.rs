//! How readers read: views, cursors, pages, lists that are kept ready, followers.

pub mod change_cursor;
pub mod followed;
pub mod inspect;
pub(crate) mod kept;
pub mod lists;
#[cfg(test)]
mod lists_test;
pub mod page;
mod part;
pub mod trail;
#[cfg(test)]
mod trail_test;
pub mod view;
