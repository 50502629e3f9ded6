//! What each metric means, as `# HELP` in Prometheus' text form.
//!
//! Nomad's dashboards query metrics that do not exist here, because there is nothing to measure:
//! - `memberlist.*`, `serf.*`, `leader.reconcile*`, `rpc.raft_handoff`: servers do not gossip, and
//!   Raft has connections of its own.
//! - `rpc.cross-region.*`, `client.consul.*`, `client.introduction_violation_num`,
//!   `variables.locks.*`, `plan.rejection_tracker.*`: what they count does not exist here.
//! - `runtime.gc_*`, `runtime.heap_objects`, `runtime.malloc_count`, `runtime.free_count`: nothing
//!   is collected here.
//! - `client.allocs.memory.max_usage`, `client.allocs.memory.kernel_*`: no driver measures them.
//! - `plan.optimistic_apply`, `plan.outstanding_apply`, `plan.raft_dispatch`,
//!   `plan.sign_identities`: steps of another applier; `plan.evaluate` and `plan.apply` time this.
//! - `raft.barrier`, `raft.boltdb.*`, `raft.commitNumLogs`, `raft.fsm.enqueue`,
//!   `raft.leader.dispatchNumLogs`, `raft.replication.*`, `raft.thread.*`, `raft.transition.*`:
//!   queues, threads and files of another Raft.
//! - `worker.create_eval`, `worker.reblock_eval`: both are part of the event that ends an
//!   evaluation, whose time is `worker.update_eval`.
//! - `eval.dequeue`: workers take evaluations from the broker without a call; how long they wait is
//!   `worker.dequeue_eval`.
//! - `job.latest_deployment`, `job_summary.get_job_summary`: no call is made for them; a request is
//!   timed where it is served, with all others of its kind, as `drover.http.request.seconds`.
//! - `acl.accessorForSecretToken`: there is no such step; who calls is found out once for a
//!   request, and most often remembered.
//! - `fsm.<op>`: events are applied in batches of all kinds, whose time is `raft.fsm.apply`.
//!
//! And because it would say less than what is there:
//! - `client.host.cpu.total_ticks_count`, `client.allocs.cpu.total_ticks_count`: counters that grow
//!   with each look; `total_ticks` is the level.
//! - `scheduler.allocs.reschedule.*`: a series for each allocation; its row says it.
//! - `event_broker.subscription.request_offset`, `raft.leader.oldestLogAge`: the log is the buffer,
//!   and `drover.log.first_index` says how far back it goes.
//! - `rpc.accept_conn`, `streaming_rpc.*`, `agent.http.connections`: connections and streams are
//!   counted where they are refused, and requests where they are served.

use std::borrow::Cow;

/// Names in Prometheus' form and what they mean, a line each. Names of Nomad's are kept as its
/// dashboards expect them, whatever Prometheus' own conventions are.
const MEANINGS: &str = "\
drover_connections_refused_total Connections that were refused because there were too many.
drover_http_request_seconds Seconds until the answer to a request began, but for those that wait.
drover_log_bytes Bytes of the event log on this server's disk.
drover_log_events_total Events and Raft entries that the log has held: the rate of changes.
drover_log_first_index The horizon: the first index that the log still holds.
drover_log_last_index The last index of the log.
drover_log_segments Files of the event log.
drover_log_signed_index The index of the last signed checkpoint.
drover_projections_bytes Bytes of the tables on this server's disk.
drover_projections_flushed_index The index up to which the tables are on disk.
drover_projections_threadless_total Flushes of the tables that no thread could be had for.
drover_projections_waited_seconds Seconds that apply waited for a disk that does not keep up.
drover_publisher_connected 1 while brokers answer.
drover_publisher_lag_events Events that wait to be published to Kafka.
drover_publisher_lag_seconds Age of the first event that waits to be published to Kafka.
drover_publisher_messages_total Messages that were published to Kafka.
drover_publisher_oversized_total Events that were too large for the broker.
drover_publisher_published_index The last index that was published to Kafka.
drover_reactor_activations_total How often a reactor looked at the state.
drover_reactor_failures_total How often an activation of a reactor failed or panicked.
drover_reactor_running 1 where a reactor runs on this server.
drover_requests_left_out_total What strangers were denied that the request log does not have.
drover_requests_limited_total Requests and calls that were refused because there were too many.
drover_requests_lost_total Requests that could not be written into the request log.
drover_requests_served_total Requests and calls, refused ones too, by route and by caller.
drover_requests_spent_seconds Seconds until the timed answers began, by the same.
drover_requests_timed_total Requests and calls that were timed: those that may wait are not.
drover_rpc_nodes_reachable Nodes of other machines that this server can send requests to.
drover_scheduling_left_out How often scheduling left out a row that cannot be read.
drover_state_digests_at_index The index whose digests the servers agreed on last.
drover_state_digests_differ Tables that differ from what the servers agreed on.
drover_tls_expires_in_seconds Seconds until a certificate of this agent ends.
nomad_client_alloc_hook_prerun_elapsed Milliseconds that a hook before an allocation's tasks took.
nomad_client_alloc_hook_prerun_failed Hooks before an allocation's tasks that failed.
nomad_client_alloc_hook_prerun_success Hooks before an allocation's tasks that ended well.
nomad_client_allocated_cpu MHz given to allocations of this node.
nomad_client_allocated_disk MiB of disk given to allocations of this node.
nomad_client_allocated_max_memory MiB that allocations of this node may use at most.
nomad_client_allocated_memory MiB of memory given to allocations of this node.
nomad_client_allocated_network Mbit/s of an interface given to allocations of this node.
nomad_client_allocations_blocked Allocations that wait for others on this node to end.
nomad_client_allocations_migrating Allocations that take over data from another node.
nomad_client_allocations_pending Allocations on this node that do not run yet.
nomad_client_allocations_running Allocations that run on this node.
nomad_client_allocations_terminal Allocations on this node that are over.
nomad_client_allocs_complete Allocations that ended well on this node.
nomad_client_allocs_cpu_allocated MHz given to a task.
nomad_client_allocs_cpu_system Percent of a processor that a task uses in the kernel.
nomad_client_allocs_cpu_throttled_periods Periods in which a task was throttled.
nomad_client_allocs_cpu_throttled_time Nanoseconds for which a task was throttled.
nomad_client_allocs_cpu_total_percent Percent of a processor that a task uses.
nomad_client_allocs_cpu_total_ticks MHz that a task uses.
nomad_client_allocs_cpu_user Percent of a processor that a task uses outside the kernel.
nomad_client_allocs_destroy Allocations of which nothing is left on this node.
nomad_client_allocs_failed Allocations that failed on this node.
nomad_client_allocs_memory_allocated Bytes of memory given to a task.
nomad_client_allocs_memory_cache Bytes of page cache of a task.
nomad_client_allocs_memory_max_allocated Bytes of memory that a task may use at most.
nomad_client_allocs_memory_rss Bytes of a task that are resident.
nomad_client_allocs_memory_swap Bytes of a task that are swapped out.
nomad_client_allocs_memory_usage Bytes of memory that a task uses.
nomad_client_allocs_oom_killed Tasks that the kernel killed for their memory.
nomad_client_allocs_restart Tasks that were started again.
nomad_client_allocs_running Allocations that began to run on this node.
nomad_client_allocs_start Allocations that this agent began with, new ones or found again.
nomad_client_host_cpu_idle Percent of a processor that is idle.
nomad_client_host_cpu_system Percent of a processor in the kernel.
nomad_client_host_cpu_total Percent of a processor in use.
nomad_client_host_cpu_total_percent Percent of a processor in use.
nomad_client_host_cpu_total_ticks MHz of a processor in use.
nomad_client_host_cpu_user Percent of a processor outside the kernel.
nomad_client_host_disk_available Free bytes of a file system.
nomad_client_host_disk_inodes_percent Percent of a file system's inodes in use.
nomad_client_host_disk_size Bytes of a file system.
nomad_client_host_disk_used Bytes of a file system in use.
nomad_client_host_disk_used_percent Percent of a file system in use.
nomad_client_host_memory_available Bytes of memory that can be had.
nomad_client_host_memory_free Bytes of memory that are not in use.
nomad_client_host_memory_total Bytes of memory.
nomad_client_host_memory_used Bytes of memory in use.
nomad_client_task_hook_prestart_elapsed Milliseconds that a hook before a task took.
nomad_client_task_hook_prestart_failed Hooks before a task that failed.
nomad_client_task_hook_prestart_success Hooks before a task that ended well.
nomad_client_tasks_dead Tasks on this node that are over.
nomad_client_tasks_pending Tasks on this node that do not run yet.
nomad_client_tasks_running Tasks that run on this node.
nomad_client_unallocated_cpu MHz of this node that are not allocated.
nomad_client_unallocated_disk MiB of disk of this node that are not allocated.
nomad_client_unallocated_memory MiB of memory of this node that are not allocated.
nomad_client_unallocated_network Mbit/s of an interface of this node that are not allocated.
nomad_client_uptime Seconds since this machine started.
nomad_nomad_agent_http_exceeded Connections to the API that were refused: there were too many.
nomad_nomad_autopilot_failure_tolerance Voters that the cluster can lose and still has a leader.
nomad_nomad_autopilot_healthy 1 while all servers are well.
nomad_nomad_blocked_evals_cpu MHz that blocked evaluations found no place for.
nomad_nomad_blocked_evals_job_cpu MHz that a job found no place for.
nomad_nomad_blocked_evals_job_memory MiB that a job found no place for.
nomad_nomad_blocked_evals_memory MiB that blocked evaluations found no place for.
nomad_nomad_blocked_evals_total_blocked Evaluations that found no place.
nomad_nomad_blocked_evals_total_escaped Blocked evaluations that wait for any node.
nomad_nomad_blocked_evals_total_quota_limit Blocked evaluations that wait for a quota.
nomad_nomad_broker__core_ready Evaluations of garbage collection that can be worked on.
nomad_nomad_broker__core_unacked Evaluations of garbage collection that are worked on.
nomad_nomad_broker_batch_ready Evaluations of batch jobs that can be worked on.
nomad_nomad_broker_batch_unacked Evaluations of batch jobs that are worked on.
nomad_nomad_broker_eval_waiting Seconds until an evaluation that waits for a time can be worked on.
nomad_nomad_broker_process_time Milliseconds that evaluations were worked on.
nomad_nomad_broker_response_time Milliseconds from an evaluation's being ready until it was done.
nomad_nomad_broker_service_ready Evaluations of services that can be worked on.
nomad_nomad_broker_service_unacked Evaluations of services that are worked on.
nomad_nomad_broker_sysbatch_ready Evaluations of sysbatch jobs that can be worked on.
nomad_nomad_broker_sysbatch_unacked Evaluations of sysbatch jobs that are worked on.
nomad_nomad_broker_system_ready Evaluations of system jobs that can be worked on.
nomad_nomad_broker_system_unacked Evaluations of system jobs that are worked on.
nomad_nomad_broker_total_cancelable Evaluations that are about to be cancelled.
nomad_nomad_broker_total_pending Evaluations that wait for another one of their job.
nomad_nomad_broker_total_ready Evaluations that can be worked on.
nomad_nomad_broker_total_unacked Evaluations that are worked on.
nomad_nomad_broker_total_waiting Evaluations that wait for a time.
nomad_nomad_broker_wait_time Milliseconds that ready evaluations waited for a worker.
nomad_nomad_heartbeat_active Nodes whose heartbeats are waited for.
nomad_nomad_heartbeat_invalidate Milliseconds that it took to give up a node that was silent.
nomad_nomad_job_status_dead Jobs of which nothing runs or will run.
nomad_nomad_job_status_pending Jobs that wait for a place.
nomad_nomad_job_status_running Jobs of which something runs.
nomad_nomad_job_summary_complete Allocations of a group that ended well.
nomad_nomad_job_summary_failed Allocations of a group that failed.
nomad_nomad_job_summary_lost Allocations of a group that were lost with their nodes.
nomad_nomad_job_summary_queued Allocations of a group that wait for a place.
nomad_nomad_job_summary_running Allocations of a group that run.
nomad_nomad_job_summary_starting Allocations of a group that start.
nomad_nomad_job_summary_unknown Allocations of a group whose nodes are out of contact.
nomad_nomad_leader_barrier Milliseconds from an election until its first entry was applied.
nomad_nomad_leader_establish_leadership Milliseconds until all that a leader does had started.
nomad_nomad_leader_revoke_leadership Milliseconds until all that a leader does had ended.
nomad_nomad_plan_apply Milliseconds from a plan's being proposed until it was applied.
nomad_nomad_plan_evaluate Milliseconds that the check of a plan took.
nomad_nomad_plan_node_rejected Nodes that plans no longer fitted on.
nomad_nomad_plan_queue_depth Plans that wait to be checked.
nomad_nomad_plan_submit Milliseconds from a plan's submission until its outcome.
nomad_nomad_plan_wait_for_index Milliseconds until the check of a plan had the newest state.
nomad_nomad_rpc_query Calls that this server answered and that changed nothing.
nomad_nomad_rpc_request Calls that this server answered.
nomad_nomad_rpc_request_error Calls that this server failed to answer.
nomad_nomad_worker_dequeue_eval Milliseconds that a worker waited for an evaluation.
nomad_nomad_worker_invoke_scheduler_batch Milliseconds of a run of the scheduler for batch.
nomad_nomad_worker_invoke_scheduler_service Milliseconds of a run of the scheduler for services.
nomad_nomad_worker_invoke_scheduler_sysbatch Milliseconds of a run of the scheduler for sysbatch.
nomad_nomad_worker_invoke_scheduler_system Milliseconds of a run of the scheduler for system jobs.
nomad_nomad_worker_send_ack Milliseconds until the broker knew that an evaluation was over.
nomad_nomad_worker_submit_plan Milliseconds that a worker waited for its plan's outcome.
nomad_nomad_worker_update_eval Milliseconds until the end of an evaluation was written.
nomad_nomad_worker_wait_for_index Milliseconds that a worker waited for its view of the state.
nomad_raft_appliedIndex The last index that is applied.
nomad_raft_apply Entries of the log that were applied.
nomad_raft_apply_batch Milliseconds for which one batch of applied events held up all others.
nomad_raft_commitTime Milliseconds until a majority had a batch of entries that this server led.
nomad_raft_fsm_apply Milliseconds that an entry took to apply, the mean of each batch.
nomad_raft_fsm_restore Milliseconds that it took to read a state from a snapshot.
nomad_raft_fsm_snapshot Milliseconds that it took to write the state for a snapshot.
nomad_raft_lastIndex The last index of the log.
nomad_raft_leader_dispatchLog Milliseconds until what this server led was on its own disk.
nomad_raft_leader_lastContact Milliseconds since another voter answered this server, which leads.
nomad_raft_peers Servers of the cluster.
nomad_raft_state_candidate How often this server stood for election.
nomad_raft_state_follower How often this server became a follower, its start included.
nomad_raft_state_leader How often this server became the leader.
nomad_runtime_alloc_bytes Resident bytes of this process.
nomad_runtime_num_goroutines Threads of this process.
nomad_runtime_open_files Open files of this process.
nomad_runtime_sys_bytes Virtual bytes of this process.
nomad_state_snapshotIndex The index of the state that is read.
process_open_fds Open files of this process.
process_resident_memory_bytes Resident bytes of this process.
process_virtual_memory_bytes Virtual bytes of this process.";

/// What a metric means.
pub(super) fn meaning(name: &str) -> Option<Cow<'static, str>> {
    let mut known = MEANINGS.lines().filter_map(|line| line.split_once(' '));
    if let Some((_, meaning)) = known.find(|(known, _)| *known == name) {
        return Some(meaning.into());
    }
    let rest = name.strip_prefix("nomad_nomad_")?;
    if let Some((endpoint, kind)) = rest
        .strip_prefix("rpc_")
        .and_then(|rest| rest.rsplit_once('_'))
    {
        return Some(format!("Calls of {endpoint} that {kind}.").into());
    }
    let endpoints = [
        "acl_",
        "alloc_",
        "client_",
        "csi_",
        "host_volume_",
        "server_forward",
        "service_registration_",
        "status_",
        "task_group_host_volume_claim_",
    ];
    let call = endpoints.iter().any(|endpoint| rest.starts_with(endpoint));
    call.then(|| format!("Milliseconds that the call {rest} took.").into())
}

/// Puts what each metric means before it.
pub(super) fn add(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split(' ').next())
        {
            let meaning = meaning(name).unwrap_or_else(|| format!("The metric {name}.").into());
            out.push_str(&format!("# HELP {name} {meaning}\n"));
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What Nomad's documentation of its metrics names, and what an agent of it was seen to report,
    /// by family.
    const NOMADS: &[(&str, &str)] = &[
        (
            "nomad.client.allocated",
            "cpu disk max_memory memory network",
        ),
        (
            "nomad.client.allocs",
            "complete destroy failed oom_killed restart running start",
        ),
        (
            "nomad.client.allocs.cpu",
            "allocated system throttled_periods throttled_time total_percent total_ticks
             total_ticks_count user",
        ),
        (
            "nomad.client.allocs.memory",
            "allocated cache kernel_max_usage kernel_usage max_allocated max_usage rss swap usage",
        ),
        ("nomad.client.unallocated", "cpu disk memory network"),
        (
            "nomad.nomad.broker",
            "_core_ready _core_unacked batch_ready batch_unacked eval_waiting process_time
             response_time service_ready service_unacked sysbatch_ready sysbatch_unacked
             system_ready system_unacked total_cancelable total_pending total_ready total_unacked
             total_waiting wait_time",
        ),
        ("nomad.nomad.job_status", "dead pending running"),
        (
            "nomad.nomad.job_summary",
            "complete failed get_job_summary lost queued running starting unknown",
        ),
        (
            "nomad.nomad.plan",
            "apply evaluate node_rejected optimistic_apply outstanding_apply queue_depth
             raft_dispatch rejection_tracker.node_score sign_identities submit wait_for_index",
        ),
        (
            "nomad.raft",
            "appliedIndex apply barrier commitNumLogs commitTime fsm.apply fsm.enqueue lastIndex
             leader.dispatchLog leader.dispatchNumLogs leader.lastContact leader.oldestLogAge peers
             replication.appendEntries state.candidate state.follower state.leader
             thread.fsm.saturation thread.main.saturation transition.heartbeat_timeout
             transition.leader_lease_timeout",
        ),
        (
            "nomad.raft.boltdb",
            "freePageBytes freelistBytes numFreePages numPendingPages openReadTxn totalReadTxn",
        ),
        (
            "nomad.raft.boltdb.txstats",
            "cursorCount nodeCount nodeDeref pageAlloc pageCount rebalance rebalanceTime spill
             spillTime split write writeTime",
        ),
    ];

    /// Those of them that do not exist here: the head of this file has the reasons.
    const LEFT_OUT: &[(&str, &str)] = &[
        ("nomad.client.allocs.cpu", "total_ticks_count"),
        (
            "nomad.client.allocs.memory",
            "kernel_max_usage kernel_usage max_usage",
        ),
        ("nomad.nomad.job_summary", "get_job_summary"),
        (
            "nomad.nomad.plan",
            "optimistic_apply outstanding_apply raft_dispatch rejection_tracker.node_score
             sign_identities",
        ),
        (
            "nomad.raft",
            "barrier commitNumLogs fsm.enqueue leader.dispatchNumLogs leader.oldestLogAge
             replication.appendEntries thread.fsm.saturation thread.main.saturation
             transition.heartbeat_timeout transition.leader_lease_timeout",
        ),
        (
            "nomad.raft.boltdb",
            "freePageBytes freelistBytes numFreePages numPendingPages openReadTxn totalReadTxn",
        ),
        (
            "nomad.raft.boltdb.txstats",
            "cursorCount nodeCount nodeDeref pageAlloc pageCount rebalance rebalanceTime spill
             spillTime split write writeTime",
        ),
    ];

    /// The names of these families in Prometheus' form.
    fn names(families: &[(&str, &str)]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (family, all) in families {
            let all = all.split_whitespace();
            names.extend(all.map(|one| format!("{family}.{one}").replace('.', "_")));
        }
        names
    }

    #[test]
    fn each_metric_of_nomads_is_explained_or_known_to_be_left_out() {
        let known = MEANINGS.lines().filter_map(|line| line.split_once(' '));
        let explained: BTreeSet<&str> = known.map(|(name, _)| name).collect();
        let mut missing = names(NOMADS);
        missing.retain(|name| !explained.contains(name.as_str()));
        assert_eq!(missing, names(LEFT_OUT));
    }

    #[test]
    fn meanings_are_in_the_order_of_their_names() {
        let mut last = "";
        for line in MEANINGS.lines() {
            let (name, meaning) = line.split_once(' ').expect("a name and its meaning");
            assert!(last < name, "{last} before {name}");
            assert!(meaning.ends_with('.'), "{name}");
            last = name;
        }
    }

    #[test]
    fn every_type_has_its_help_before_it() {
        let text = "# TYPE nomad_raft_lastIndex gauge\nnomad_raft_lastIndex 7\n";
        let added = add(text);
        assert!(
            added.starts_with("# HELP nomad_raft_lastIndex The last index of the log.\n# TYPE")
        );
        assert_eq!(
            meaning("nomad_nomad_rpc_node_write").as_deref(),
            Some("Calls of node that write.")
        );
        assert!(meaning("nomad_nomad_client_update_status").is_some());
        assert_eq!(meaning("something"), None);
    }
}
