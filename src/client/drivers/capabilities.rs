//! Rights of processes by their names: what a task requests, and what it may have.

/// All there are, each in the place of its number.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];
/// What Nomad allows, and gives, where nothing is configured.
const DEFAULTS: [&str; 13] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];
/// Stands for all.
const ALL: &str = "all";

/// Rights, as the kernel's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set(pub u64);

impl Set {
    /// What tasks are allowed, and given, where nothing is configured.
    pub fn usual() -> Self {
        Self::named(&DEFAULTS).unwrap_or(Self(0))
    }

    /// Those of these names, in any case, with or without `CAP_` before.
    ///
    /// # Errors
    /// The names that are not known.
    pub fn named(names: &[impl AsRef<str>]) -> Result<Self, String> {
        let mut out = Self(0);
        let mut unknown = Vec::new();
        for name in names {
            let name = name.as_ref().trim().to_lowercase();
            let bare = name.strip_prefix("cap_").unwrap_or(&name);
            match NAMES.iter().position(|known| *known == bare) {
                Some(number) => out.0 |= 1 << number,
                None if bare == ALL => out.0 |= (1 << NAMES.len()) - 1,
                None => unknown.push(name),
            }
        }
        match unknown.is_empty() {
            true => Ok(out),
            false => Err(unknown.join(", ")),
        }
    }

    /// Their names, in the order of letters.
    pub fn names(self) -> String {
        let has = |(number, _): &(usize, &&str)| self.0 & (1 << number) != 0;
        let names = NAMES.iter().enumerate().filter(has);
        let mut names: Vec<&str> = names.map(|(_, name)| *name).collect();
        names.sort_unstable();
        names.join(", ")
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What a task gets that requests some and gives up others: at most what is allowed.
///
/// # Errors
/// It requests more.
pub fn given(allowed: Set, requested: Set, dropped: Set) -> Result<Set, String> {
    let more = requested.without(allowed);
    if more != Set(0) {
        let names = more.names();
        return Err(format!(
            "driver does not allow the following capabilities: {names}"
        ));
    }
    let usual = Set(Set::usual().0 & allowed.0);
    Ok(Set(usual.without(dropped).0 | requested.without(dropped).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_people_write_them() {
        let set = Set::named(&["NET_ADMIN", "cap_chown", "CAP_Kill "]).unwrap();
        assert_eq!(set.names(), "chown, kill, net_admin");
        assert_eq!(set.0, 1 | 1 << 5 | 1 << 12);
        assert_eq!(Set::named(&["all"]).unwrap().0.count_ones(), 41);
        let unknown = Set::named(&["chown", "x", "root"]).unwrap_err();
        assert_eq!(unknown, "x, root");
        assert_eq!(Set::usual().0, 0xa804_25fb & !(1 << 13));
        assert_eq!(Set::named(&[""; 0]), Ok(Set(0)));
    }

    #[test]
    fn a_task_gets_what_it_asks_for_if_that_is_allowed_and_loses_what_it_gives_up() {
        let set = |names: &[&str]| Set::named(names).unwrap();
        let usual = Set::usual();
        let none = Set(0);
        for (allowed, requested, dropped, wanted) in [
            (usual, none, none, Ok(usual)),
            (usual, none, set(&["all"]), Ok(none)),
            (
                set(&["all"]),
                set(&["net_admin"]),
                none,
                Ok(Set(usual.0 | 1 << 12)),
            ),
            (
                set(&["chown", "net_admin"]),
                none,
                none,
                Ok(set(&["chown"])),
            ),
            (none, none, none, Ok(none)),
            (
                usual,
                set(&["chown"]),
                set(&["chown"]),
                Ok(usual.without(set(&["chown"]))),
            ),
            (
                usual,
                set(&["net_admin", "bpf", "chown"]),
                none,
                Err("driver does not allow the following capabilities: bpf, net_admin".to_owned()),
            ),
        ] {
            assert_eq!(given(allowed, requested, dropped), wanted);
        }
    }
}
