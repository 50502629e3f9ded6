# A service with a volume: it adds a line for every run of it, and shows them all.
job "demo-ledger" {
  type = "service"

  group "ledger" {
    # It may move as soon as it runs.
    update {
      min_healthy_time = "0s"
    }

    volume "data" {
      type            = "csi"
      source          = "ledger"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "ledger" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args = ["-c", <<-SH
          echo "run on $NODE by allocation $NOMAD_ALLOC_ID" >> $NOMAD_VOLUME_data/ledger
          cat $NOMAD_VOLUME_data/ledger
          exec sleep 3600
        SH
        ]
      }

      env {
        NODE = "${node.unique.name}"
      }

      volume_mount {
        volume      = "data"
        destination = "/srv/data"
      }

      kill_timeout = "1s"

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
