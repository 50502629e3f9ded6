//! The process itself as gauges: resident memory, threads, open files.

/// Sets the gauges of the process from `/proc/self`.
pub(super) fn observe() {
    let Ok(me) = procfs::process::Process::myself() else {
        return;
    };
    if let Ok(stat) = me.stat() {
        let resident = stat.rss * procfs::page_size();
        metrics::gauge!("nomad.runtime.alloc_bytes").set(resident as f64);
        metrics::gauge!("nomad.runtime.sys_bytes").set(stat.vsize as f64);
        metrics::gauge!("nomad.runtime.num_goroutines").set(stat.num_threads as f64);
    }
    if let Ok(stat) = me.stat() {
        let resident = stat.rss * procfs::page_size();
        metrics::gauge!("process_resident_memory_bytes").set(resident as f64);
        metrics::gauge!("process_virtual_memory_bytes").set(stat.vsize as f64);
    }
    if let Ok(files) = me.fd_count() {
        metrics::gauge!("process_open_fds").set(files as f64);
        metrics::gauge!("nomad.runtime.open_files").set(files as f64);
    }
}
