//! A progress bar on standard error, where that is a terminal.

use super::out::Out;
use indicatif::{ProgressBar, ProgressStyle};

/// The bar; none without a terminal.
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar that counts `unit`, with rate and time left.
    pub(super) fn new(out: &Out, unit: &str) -> Bar {
        let style =
            format!("{{bar:40}} {{percent}}% {{pos}}/{{len}} {unit}  {{per_sec}}  {{eta}} left");
        Bar::styled(out, &style)
    }

    /// A bar that counts bytes, with rate and time left.
    pub(super) fn bytes(out: &Out) -> Bar {
        let style = "{bar:40} {percent}% {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
        Bar::styled(out, style)
    }

    /// A bar that looks so, as indicatif's templates say.
    pub(super) fn styled(out: &Out, style: &str) -> Bar {
        Bar(out.draws().then(|| {
            let bar = ProgressBar::no_length();
            match ProgressStyle::with_template(style) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        }))
    }

    /// What is being done.
    pub(super) fn say(&self, what: &'static str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what);
        }
    }

    /// So much is done, of an unknown whole.
    pub(super) fn reach(&self, at: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(at);
        }
    }

    /// So much is done, of so much.
    pub(super) fn set(&self, at: u64, all: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(all);
            bar.set_position(at);
        }
    }

    /// What was done before counts for the position, not for the rate.
    pub(super) fn skip(&self, at: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(at);
            bar.reset_eta();
        }
    }

    /// Takes it away.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
