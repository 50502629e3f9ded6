//! The configuration as `/v1/agent/self` shows it: Nomad's names, secrets left out.

use serde_json::{Value, json};

use super::settings::block_to_json;
use super::{Addresses, Config};

impl Config {
    /// The configuration for people and clients to read: what is declared `shown`, and what follows
    /// from it. Tokens and keys are not in it.
    pub fn describe(&self) -> Value {
        let advertise = Addresses {
            http: self.http_advertise().ok(),
            rpc: self.rpc_advertise().ok(),
            serf: self.advertise.serf.clone(),
        };
        let mut all = block_to_json(self);
        all["Addresses"] = addresses(&self.addresses, &self.bind_addr);
        all["AdvertiseAddrs"] = addresses(&advertise, &self.bind_addr);
        all["NodeName"] = json!(self.node_name());
        for list in ["Filters", "Sinks"] {
            all["Audit"][list] = Value::Null;
        }
        all
    }
}

fn addresses(named: &Addresses, bind: &str) -> Value {
    let or_bind = |one: &Option<String>| one.clone().unwrap_or_else(|| bind.to_owned());
    json!({
        "HTTP": or_bind(&named.http),
        "RPC": or_bind(&named.rpc),
        "Serf": or_bind(&named.serf),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let mut config = Config::dev();
        config.acl.replication_token.0 = "canary-8c6f".to_owned();
        let shown = config.describe();
        assert_eq!(shown["Region"], "global");
        assert_eq!(shown["Ports"]["HTTP"], 4646);
        assert!(!shown.to_string().contains("canary-8c6f"));
    }
}
