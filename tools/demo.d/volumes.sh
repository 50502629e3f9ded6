# Part of tools/demo, which reads it: a CSI plugin as a job on two clients, a volume, agents that are
# killed while it is being mounted, and a move to the other machine.

vol="$dir/vol"
vol_port=$((http + 200))
while taken "$vol_port" || taken "$((vol_port + 10))" || taken "$((vol_port + 20))"; do
    vol_port=$((vol_port + 30))
done
NOMAD_ADDR="http://127.0.0.1:$vol_port"
unset NOMAD_TOKEN NOMAD_CACERT

vol_agent() { # name
    "$drover" agent -config "$vol/$1.hcl" -data-dir "$vol/$1" >>"$dir/agent.log" 2>&1 9>&- &
    echo "$!" >"$vol/$1.pid"
}
vol_config() { # name, its ports, its block
    cat >"$vol/$1.hcl" <<CONFIG
name      = "$1"
bind_addr = "127.0.0.1"
ports {
  http = $2
  rpc  = $(($2 + 1))
  serf = $(($2 + 2))
}
$3
CONFIG
}
vol_client() { # name, its ports
    vol_config "$1" "$2" 'client {
  enabled = true
  servers = ["127.0.0.1:'"$((vol_port + 1))"'"]
}
plugin "raw_exec" {
  config { enabled = true }
}'
}
# Ends the agents; and whatever still runs or is mounted, when a demonstration failed.
vol_cleanup() {
    for pid in "$vol"/*.pid; do
        [ ! -e "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true
    done
    for name in server east west; do
        [ ! -e "$vol/$name.pid" ] || wait "$(cat "$vol/$name.pid")" || true
    done
    # What runs a task has its folder among its words, and so has the plugin; the task ends with it.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left=
        for place in /proc/[0-9]*; do
            # It may have ended meanwhile.
            if grep -qsF "$vol/" "$place/cmdline"; then left="$left ${place#/proc/}"; fi
        done
        [ -n "$left" ] || break
        kill -9 $left 2>/dev/null || true
        sleep 0.1
    done
    for task in "$vol"/*/client/tasks/*; do
        find /sys/fs/cgroup -depth -type d -path "*/drover*/${task##*/}.*" -exec rmdir {} \; 2>/dev/null || true
    done
    awk -v below="$vol/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        while IFS= read -r path; do umount -l "$path" || true; done
}
vol_healthy() { "$drover" plugin status -json -type csi hostpath | grep -q '"NodesHealthy": *2'; }
vol_called() { grep -q "\"call\":\"$1\"" "$vol/calls"; }
vol_lines() { [ "$("$drover" alloc logs -job demo-ledger 2>/dev/null | grep -c '^run on')" = "$1" ]; }
vol_field() { "$drover" job allocs -json demo-ledger | sed -n "s/^ *\"$1\": *\"\(.*\)\".*/\1/p" | head -n 1; }
vol_unplugged() { ! status_of demo-plugin running; }
vol_waits() { "$drover" volume explain ledger | grep -q 'waits for a controller to detach'; }
vol_free() { "$drover" volume explain ledger | grep -q 'nobody holds it'; }

say "a volume: a CSI plugin runs as a job on two clients"
mkdir "$vol"
vol_config server "$vol_port" 'server {
  enabled = true
  bootstrap_expect = 1
}'
vol_client east "$((vol_port + 10))"
vol_client west "$((vol_port + 20))"
vol_agent server
until_true 60 "the server" leader_known
for name in east west; do vol_agent "$name"; done
show job run -detach -var "program=$(dirname "$drover")/drover-hostpath" -var "dir=$vol" tools/demo.d/plugin.hcl
until_true 60 "a healthy plugin on both clients" vol_healthy
show plugin status hostpath
show volume create tools/demo.d/ledger-volume.hcl

say "kill -9 the server and the client between stage and publish"
echo '[{"call": "NodePublishVolume", "times": 1, "do": {"slow": {"ms": 2000}}}]' >"$vol/faults"
show job run -detach tools/demo.d/ledger.hcl
until_true 60 "the volume to be staged" vol_called NodePublishVolume
first=$(vol_field NodeName) first_id=$(vol_field NodeID)
for name in server "$first"; do kill -9 "$(cat "$vol/$name.pid")"; done
for name in server "$first"; do wait "$(cat "$vol/$name.pid")" 2>/dev/null || true; done
vol_agent server
until_true 60 "the server" leader_known
vol_agent "$first"
until_true 60 "the service to run" status_of demo-ledger running
until_true 20 "its line" vol_lines 1
show alloc logs -job demo-ledger
show volume explain ledger

say "move it to the other machine, and read what was written"
show node drain -enable -yes -ignore-system -detach "$first_id"
until_true 60 "the service to run there with both lines" vol_lines 2
show alloc logs -job demo-ledger
show volume status -type csi ledger

say "let it go: who held it, every step of it, and who did that"
echo '[{"call": "ControllerUnpublishVolume", "times": 1, "do": {"slow": {"ms": 1500}}}]' >"$vol/faults"
show job stop -detach demo-ledger
until_true 60 "the volume to be unmounted" vol_waits
show volume explain ledger
until_true 60 "the volume to be free" vol_free
show volume explain ledger
show volume history ledger
echo "what the plugin was asked, in this order:"
sed -n 's/.*"node":"\([^"]*\)","call":"\([A-Z][a-z]*[A-Z][a-z]*Volume\)","begin".*/\1 \2/p' "$vol/calls"
show volume delete ledger
show job stop -detach demo-plugin
until_true 30 "the plugin to end" vol_unplugged
vol_cleanup
