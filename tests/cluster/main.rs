//! Real processes, real kills.

mod t10_kill_and_restart;
mod t20_no_acknowledged_write_is_lost;
