use super::*;

#[test]
fn only_a_temporary_directory_vanishes() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config {
        data_dir: Some(own.path().join("data")),
        ..Config::default()
    };
    let kept = DataDir::make(&config).expect("makes").path().to_owned();
    assert!(kept.is_dir());
    config.data_dir = None;
    let dir = DataDir::make(&config).expect("makes");
    let path = dir.path().to_owned();
    assert!(path.is_dir());
    drop(dir);
    assert!(!path.exists());
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("is there").mode() & 0o7777
}

#[test]
fn nobody_else_looks_into_what_is_not_theirs() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config {
        data_dir: Some(own.path().join("above/data")),
        ..Config::default()
    };
    config.server.enabled = true;
    let path = DataDir::make(&config).expect("makes").path().to_owned();
    assert_eq!((mode(&path), mode(&path.join("server"))), (0o700, 0o700));
    assert!(!path.join("client").exists());

    config.data_dir = Some(own.path().join("both"));
    config.client.enabled = true;
    let both = own.path().join("both");
    // What an older version made is taken back.
    for (dir, before) in [("server", 0o755), ("client", 0o777), ("alloc", 0o755)] {
        std::fs::create_dir_all(both.join(dir)).expect("makes");
        set_mode(&both.join(dir), before).expect("sets");
    }
    DataDir::make(&config).expect("makes");
    for (dir, after) in [("server", 0o700), ("client", 0o700), ("alloc", 0o711)] {
        assert_eq!(mode(&both.join(dir)), after, "{dir}");
    }
    config.data_dir = Some(own.path().join("new"));
    let path = DataDir::make(&config).expect("makes").path().to_owned();
    assert_eq!((mode(&path), mode(&path.join("alloc"))), (0o711, 0o711));

    // Where the server keeps its files elsewhere, that is taken back.
    let elsewhere = own.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("makes");
    set_mode(&elsewhere, 0o755).expect("sets");
    config.server.data_dir = Some(elsewhere.clone());
    config.data_dir = Some(own.path().join("apart"));
    let path = DataDir::make(&config).expect("makes").path().to_owned();
    assert_eq!(mode(&elsewhere), 0o700);
    assert!(!path.join("server").exists());

    // Tasks pass through it where their directories lie in it.
    let link = own.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("links");
    for (named, allocs) in [
        (&path, None),
        (&link, None),
        (&link, Some(link.join("allocs"))),
    ] {
        config.server.data_dir = Some(named.clone());
        config.client.alloc_dir = allocs;
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&path), 0o711, "{}", named.display());
    }
}

#[test]
fn a_directory_that_an_operator_chose_is_taken_back_as_far_as_that_is_needed_and_allowed() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config {
        data_dir: Some(own.path().join("data")),
        ..Config::default()
    };
    config.server.enabled = true;
    let chosen = own.path().join("chosen");
    std::fs::create_dir(&chosen).expect("makes");
    config.server.data_dir = Some(chosen.clone());
    // Where others may do nothing it stays as it is.
    for (before, after) in [(0o1700, 0o1700), (0o750, 0o700), (0o701, 0o700)] {
        set_mode(&chosen, before).expect("sets");
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&chosen), after, "{before:o}");
    }

    // One that is somebody else's is no reason not to start.
    let strange = match rustix::process::geteuid().is_root() {
        true => {
            set_mode(&chosen, 0o755).expect("sets");
            std::os::unix::fs::chown(&chosen, Some(1), None).expect("gives it away");
            chosen
        }
        false => PathBuf::from("/usr"),
    };
    let before = mode(&strange);
    config.server.data_dir = Some(strange.clone());
    DataDir::make(&config).expect("makes");
    assert_eq!(mode(&strange), before);
}

/// A server with this data directory.
fn server(data_dir: PathBuf) -> Config {
    let mut config = Config {
        data_dir: Some(data_dir),
        ..Config::default()
    };
    config.server.enabled = true;
    config
}

#[test]
fn only_a_directory_that_is_an_agents_is_taken_back() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let chosen = own.path().canonicalize().expect("is there").join("srv");
    std::fs::create_dir(&chosen).expect("makes");
    let data = DataDir::make(&server(chosen.join("below/data"))).expect("makes");
    let apart = DataDir::make(&server(own.path().join("apart"))).expect("makes");
    std::fs::remove_dir_all(chosen.join("below")).expect("removes");
    for (data, file, before, after, why) in [
        (&apart, "lost+found", 0o755, 0o700, None),
        (
            &apart,
            "log",
            0o775,
            0o775,
            Some("files, and none of an agent"),
        ),
        (&apart, "node-id", 0o1755, 0o1755, Some("for everybody")),
        (&apart, "node-id", 0o755, 0o700, None),
        (&apart, "node-id.tmp", 0o750, 0o700, None),
        (&apart, "projections-rebuild-2", 0o750, 0o700, None),
        (&apart, "data", 0o750, 0o700, None),
        // As at the second start in a directory that others use.
        (&apart, "www", 0o755, 0o755, Some("no agent's (\"www\")")),
        (
            &data,
            "",
            0o755,
            0o755,
            Some("the data directory lies in it"),
        ),
        (&data, "", 0o700, 0o700, None),
    ] {
        if !file.is_empty() {
            std::fs::write(chosen.join(file), "").expect("writes");
        }
        set_mode(&chosen, before).expect("sets");
        let places = [chosen.join("data"), chosen.join("www/data")];
        let taken = data.take_back(&chosen, OWN, &places).expect("looks");
        assert_eq!(mode(&chosen), after, "{file} {before:o}");
        assert_eq!((taken.before, taken.now), (before, after), "{file}");
        let wrong = taken.wrong.join("; ");
        match why {
            Some(why) => assert!(wrong.contains(why), "{wrong}"),
            None => assert_eq!(wrong, "", "{file} {before:o}"),
        }
        let others = wrong.contains("others may write this directory");
        assert_eq!(others, before == 0o775, "{wrong}");
    }
}

#[test]
fn no_secrets_are_kept_where_others_may_replace_them() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let chosen = own.path().join("chosen");
    std::fs::create_dir(&chosen).expect("makes");
    std::fs::write(chosen.join("www"), "").expect("writes");
    let mut config = server(own.path().join("data"));
    config.server.data_dir = Some(chosen.clone());
    for before in [0o777, 0o720, 0o702] {
        set_mode(&chosen, before).expect("sets");
        let refused = DataDir::make(&config).expect_err("refuses").to_string();
        let hint = format!("(chmod go-w {})", chosen.display());
        assert!(refused.contains(&hint), "{refused}");
        assert!(refused.contains("no agent's"), "{refused}");
        assert_eq!(mode(&chosen), before);
    }
    for before in [0o1777, 0o755] {
        set_mode(&chosen, before).expect("sets");
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&chosen), before);
    }
    // What is the agent's alone is taken back.
    std::fs::rename(chosen.join("www"), chosen.join("node-id")).expect("renames");
    set_mode(&chosen, 0o770).expect("sets");
    DataDir::make(&config).expect("makes");
    assert_eq!(mode(&chosen), 0o700);
}

#[test]
fn it_is_warned_of_who_else_may_replace_what_is_in_a_directory() {
    let me = agent_user();
    for (owner, mode, begin) in [
        (me, 0o700, ""),
        (me, 0o755, ""),
        (0, 0o711, ""),
        (me, 0o720, "others may write this directory"),
        (0, 0o702, "others may write this directory"),
        (0, 0o1777, ""),
        (me + 1, 0o700, "this directory belongs to user"),
    ] {
        let wrong = writers(owner, mode).unwrap_or_default();
        assert!(wrong.starts_with(begin), "{wrong}");
        assert_eq!(wrong.is_empty(), begin.is_empty(), "{owner} {mode:o}");
    }
}

#[test]
fn a_disk_of_somebody_elses_in_the_data_directory_is_left_as_it_is() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let config = server(own.path().join("data"));
    let data = DataDir::make(&config).expect("makes");
    let disk = data.path().join("server");
    set_mode(&disk, 0o750).expect("sets");
    // No other user can give a directory away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&disk, Some(1), None).expect("gives it away");
        DataDir::make(&config).expect("makes");
        assert_eq!(mode(&disk), 0o750);
        let wrong = data.take_back(&disk, OWN, &[]).expect("looks").wrong;
        assert!(wrong[0].contains("it belongs to user 1"), "{wrong:?}");
        assert!(wrong[1].contains("who may replace"), "{wrong:?}");
    }
}

#[test]
fn tasks_pass_through_a_directory_whatever_names_lead_to_theirs() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let (real, link) = (own.path().join("real"), own.path().join("link"));
    std::fs::create_dir(&real).expect("makes");
    std::os::unix::fs::symlink(&real, &link).expect("links");
    let mut config = Config::default();
    config.client.enabled = true;
    config.data_dir = Some(link.join("one"));
    config.client.alloc_dir = Some(real.join("one/allocs"));
    DataDir::make(&config).expect("makes");
    assert_eq!(mode(&real.join("one")), 0o711);
    // What lies in the data directory is the agent's, however it is named.
    set_mode(&real.join("one/allocs"), 0o755).expect("sets");
    config.data_dir = Some(real.join("one"));
    config.client.alloc_dir = Some(link.join("one/allocs"));
    DataDir::make(&config).expect("makes");
    assert_eq!(mode(&real.join("one/allocs")), 0o711);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_starts_leaves_tasks_their_way_through_its_state_directory() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let state = own.path().join("state");
    let mut config = Config {
        data_dir: Some(own.path().join("data")),
        ..Config::default()
    };
    config.client.enabled = true;
    config.client.servers = vec!["127.0.0.1:1".to_owned()];
    config.client.state_dir = Some(state.clone());
    config.client.alloc_dir = Some(state.join("allocs"));
    let data = DataDir::make(&config).expect("makes");
    let tls = crate::net::tls::Loader::clear();
    let started = crate::agent::client::run(&config, data.path(), None, &tls);
    let _client = started.expect("starts");
    assert_eq!(mode(&state), 0o711);
    assert_eq!(mode(&state.join("tasks")), 0o700);
    // All that it made there is known to be an agent's.
    set_mode(&state, 0o755).expect("sets");
    DataDir::make(&config).expect("makes");
    assert_eq!(mode(&state), 0o711);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_server_makes_in_its_directory_is_known_to_be_an_agents() {
    let own = tempfile::tempdir().expect("a temporary directory");
    let chosen = own.path().join("chosen");
    let mut config = Config::dev();
    config.data_dir = Some(own.path().join("data"));
    config.server.data_dir = Some(chosen.clone());
    let data = DataDir::make(&config).expect("makes");
    let telemetry = crate::telemetry::install(Duration::from_secs(10));
    let shared = std::sync::Arc::new(config.clone());
    let server = crate::server::Server::start(shared, data.path(), telemetry).await;
    let server = crate::server::testing::Stopping(server.expect("starts"));
    server.wait_ready().await;
    set_mode(&chosen, 0o755).expect("sets");
    DataDir::make(&config).expect("makes");
    assert_eq!(mode(&chosen), 0o700);
}
