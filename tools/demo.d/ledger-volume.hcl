# What demo-ledger writes to.
id        = "ledger"
name      = "ledger"
type      = "csi"
plugin_id = "hostpath"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
