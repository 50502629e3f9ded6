# A CSI plugin: controller and node part in one, on every client.
variable "program" { type = string }
variable "dir" { type = string }

job "demo-plugin" {
  type = "system"

  group "plugin" {
    task "plugin" {
      driver = "raw_exec"

      config {
        command = var.program
        args = [
          "--state-dir", "${var.dir}/volumes",
          "--record", "${var.dir}/calls",
          "--faults", "${var.dir}/faults",
          "--node-id", "${node.unique.name}",
        ]
      }

      csi_plugin {
        id   = "hostpath"
        type = "monolith"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
