//! What of a configuration is not as in another.

use super::Config;

impl Config {
    /// What differs in another configuration, by the names of settings and blocks.
    #[must_use]
    pub fn differences(&self, other: &Config) -> Vec<&'static str> {
        // Taken apart, so that whoever adds a field meets this.
        let Config {
            dev,
            region,
            datacenter,
            name,
            data_dir,
            plugin_dir,
            log,
            bind_addr,
            enable_debug,
            leave_on_interrupt,
            leave_on_terminate,
            http_compression,
            http_api_response_headers,
            ports,
            addresses,
            advertise,
            server,
            client,
            acl,
            limits,
            telemetry,
            event_publisher,
            autopilot,
            rpc,
            tls,
            ui,
            plugins,
            audit,
            // Which files there are says nothing: what is in them does.
            files: _,
        } = self;
        let all = [
            ("dev", *dev == other.dev),
            ("region", *region == other.region),
            ("datacenter", *datacenter == other.datacenter),
            ("name", *name == other.name),
            ("data_dir", *data_dir == other.data_dir),
            ("plugin_dir", *plugin_dir == other.plugin_dir),
            ("log", *log == other.log),
            ("bind_addr", *bind_addr == other.bind_addr),
            ("enable_debug", *enable_debug == other.enable_debug),
            (
                "leave_on_interrupt",
                *leave_on_interrupt == other.leave_on_interrupt,
            ),
            (
                "leave_on_terminate",
                *leave_on_terminate == other.leave_on_terminate,
            ),
            (
                "http_compression",
                *http_compression == other.http_compression,
            ),
            (
                "http_api_response_headers",
                *http_api_response_headers == other.http_api_response_headers,
            ),
            ("ports", *ports == other.ports),
            ("addresses", *addresses == other.addresses),
            ("advertise", *advertise == other.advertise),
            ("server", *server == other.server),
            ("client", *client == other.client),
            ("acl", *acl == other.acl),
            ("limits", *limits == other.limits),
            ("telemetry", *telemetry == other.telemetry),
            ("event_publisher", *event_publisher == other.event_publisher),
            ("autopilot", *autopilot == other.autopilot),
            ("rpc", *rpc == other.rpc),
            ("tls", *tls == other.tls),
            ("ui", *ui == other.ui),
            ("plugins", *plugins == other.plugins),
            ("audit", *audit == other.audit),
        ];
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
