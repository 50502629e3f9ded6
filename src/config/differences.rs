//! What of a configuration is not as in another.

use super::Config;

/// Compares these fields. They are taken apart, so that whoever adds one meets this.
macro_rules! compared {
    ($one:expr, $other:expr; $($field:ident)*) => {{
        // Which files there are says nothing: what is in them does.
        let Config { $($field,)* files: _ } = $one;
        [$((stringify!($field), *$field == $other.$field)),*]
    }};
}

impl Config {
    /// What differs in another configuration, by the names of settings and blocks.
    #[must_use]
    pub fn differences(&self, other: &Config) -> Vec<&'static str> {
        let all = compared!(self, other;
            dev region datacenter name data_dir plugin_dir
            log bind_addr enable_debug leave_on_interrupt leave_on_terminate http_compression
            http_api_response_headers ports addresses advertise
            server client acl limits telemetry event_publisher
            autopilot rpc tls ui plugins audit
        );
        let differing = all.into_iter().filter(|(_, same)| !same);
        differing.map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_as_in_a_file() {
        let one = Config::dev();
        let mut other = one.clone();
        assert!(one.differences(&other).is_empty());
        other.files.push("/a".into());
        assert!(
            one.differences(&other).is_empty(),
            "the same from elsewhere"
        );
        other.region = "eu".into();
        other.tls.http = true;
        assert_eq!(one.differences(&other), ["region", "tls"]);
    }
}
