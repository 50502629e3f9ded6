//! The keys of `client.options` that have an effect; others are named as without effect.

/// Whether `raw_exec` is offered.
pub const RAW_EXEC_ENABLE: &str = "driver.raw_exec.enable";
/// The only drivers that are offered.
pub const DRIVER_ALLOWLIST: &str = "driver.allowlist";
/// Drivers that are not.
pub const DRIVER_DENYLIST: &str = "driver.denylist";
/// The only probes that are run.
pub const FINGERPRINT_ALLOWLIST: &str = "fingerprint.allowlist";
/// Probes that are not.
pub const FINGERPRINT_DENYLIST: &str = "fingerprint.denylist";
/// Variables of the agent that tasks do not see.
pub const ENV_DENYLIST: &str = "env.denylist";
/// What that was called before.
pub const ENV_BLACKLIST: &str = "env.blacklist";
/// Users that tasks may not run as.
pub const USER_DENYLIST: &str = "user.denylist";
/// The drivers for which that counts.
pub const USER_CHECKED_DRIVERS: &str = "user.checked_drivers";

/// All of them, sorted.
pub(super) const KNOWN: &[&str] = &[
    DRIVER_ALLOWLIST,
    DRIVER_DENYLIST,
    RAW_EXEC_ENABLE,
    ENV_BLACKLIST,
    ENV_DENYLIST,
    FINGERPRINT_ALLOWLIST,
    FINGERPRINT_DENYLIST,
    USER_CHECKED_DRIVERS,
    USER_DENYLIST,
];
