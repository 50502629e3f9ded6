# drover: one machine that is server and client. See man drover-agent, and drover config validate.
# Settings behind a # are examples, not set: region, datacenter, log_level and node_pool show their
# defaults; the volume is not there, and raw_exec, acl, tls and telemetry are off.

# The log, the tables, and the directories of tasks.
data_dir = "/var/lib/drover"

# Reached from this machine only. Before it is opened to a network, switch on acl and tls below.
bind_addr = "127.0.0.1"

# region     = "global"
# datacenter = "dc1"
# log_level  = "INFO"

server {
  enabled          = true
  bootstrap_expect = 1
}

client {
  enabled = true
  # node_pool = "default"
  # host_volume "certificates" {
  #   path      = "/etc/ssl/certs"
  #   read_only = true
  # }
}

# Tasks without isolation, as the user of the agent.
# plugin "raw_exec" {
#   config {
#     enabled = true
#   }
# }

# Who may do what: then drover acl bootstrap.
# acl {
#   enabled = true
# }

# Encrypted and mutually authenticated: drover tls ca create, drover tls cert create.
# tls {
#   http      = true
#   rpc       = true
#   ca_file   = "/etc/drover.d/tls/nomad-agent-ca.pem"
#   cert_file = "/etc/drover.d/tls/global-server-nomad.pem"
#   key_file  = "/etc/drover.d/tls/global-server-nomad-key.pem"
# }

# telemetry {
#   prometheus_metrics = true
# }
