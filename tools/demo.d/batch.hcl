# A batch job with a variable: it counts and ends.
variable "upto" {
  type    = number
  default = 3
}

job "demo-batch" {
  type = "batch"

  group "count" {
    task "count" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "for n in $(seq 1 ${var.upto}); do echo \"batch step $n\"; done"]
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
