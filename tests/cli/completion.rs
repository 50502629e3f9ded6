//! Completion, as the shells do it.

use std::process::Command;

use drover_testkit::skip;

use crate::support::{DROVER, Session, service, shared_address};

/// A session with a job, and the id of its allocation.
fn running(name: &str) -> (Session, String) {
    let session = Session::new(name);
    session.file("job.hcl", &service(&format!("{name}-web"), "1", ""));
    session.done("job run -detach job.hcl");
    let id = session
        .wait_allocs(&format!("{name}-web"), "running", 1)
        .remove(0);
    (session, id)
}

fn stop(session: &Session, name: &str) {
    session.done(&format!("job stop -purge -detach {name}-web"));
}

#[test]
fn ids_and_names_are_offered() {
    let (session, id) = running("offered");
    let offered = |words: &[&str]| {
        let mut all = vec!["__complete", "--"];
        all.extend(words);
        let ran = session.words(&all, "");
        assert_eq!(ran.code, 0, "{}", ran.all());
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered(&["job", "status", "off"]), ["offered-web"]);
    assert_eq!(offered(&["job", "stop", "-detach", ""]), ["offered-web"]);
    assert_eq!(offered(&["alloc", "logs", "-f", &id[..5]]), [id.as_str()]);
    assert!(offered(&["node", "status", ""]).len() == 1);
    assert_eq!(
        offered(&["job", "status", "-namespace", "offe"]),
        ["offered"]
    );
    assert_eq!(
        offered(&["job", "status", "-namespace=offered", "o"]),
        ["offered-web"]
    );
    assert_eq!(
        offered(&["event", "stream", "-kind", "JobReg"]),
        ["JobRegistered"]
    );
    assert_eq!(
        offered(&["event", "stream", "-topic", "Depl"]),
        ["Deployment"]
    );
    assert!(offered(&["job", "st"]).is_empty(), "verbs are the scripts'");
    let files = session.words(&["__complete", "--", "job", "run", ""], "");
    assert_eq!((files.code, files.stdout.as_str()), (3, ""), "the shell's");
    assert_eq!(offered(&["node", "drain", "-en"]), ["-enable"]);
    assert_eq!(offered(&["node", "drain", "--en"]), ["--enable"]);
    let nobody = session.words(
        &[
            "__complete",
            "--",
            "job",
            "status",
            "-address=http://127.0.0.1:1",
            "",
        ],
        "",
    );
    assert_eq!(
        (nobody.code, nobody.all().as_str()),
        (0, ""),
        "a shell is not disturbed"
    );
    stop(&session, "offered");
}

/// What a shell offers for a line, one a line.
fn shell(shell: &str, script: &str, namespace: &str) -> Option<String> {
    let dir = std::path::Path::new(DROVER).parent().expect("a directory");
    let path = format!(
        "{}:{}",
        dir.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new(shell)
        .args(["-c", script])
        .env("PATH", path)
        .env("NOMAD_ADDR", format!("http://{}", shared_address()))
        .env("NOMAD_NAMESPACE", namespace)
        .output()
        .ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn bash_completes_ids_verbs_and_flags() {
    let (session, id) = running("bash");
    let line = |words: &str, last: usize| {
        format!(
            "source <(drover completions bash); COMP_WORDS=({words}); COMP_CWORD={last}; \
             _drover_ids drover \"${{COMP_WORDS[{last}]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
    };
    let offered = |words: &str, last| shell("bash", &line(words, last), "bash").expect("bash runs");
    assert_eq!(offered("drover job status ba", 3), "bash-web\n");
    let alloc = format!("drover alloc logs -f {}", &id[..5]);
    assert_eq!(offered(&alloc, 4), format!("{id}\n"));
    let node = session.json("/v1/nodes").expect("nodes")[0]["ID"].clone();
    let node = node.as_str().expect("an id").to_owned();
    let drained = format!("drover node drain -enable {}", &node[..4]);
    assert_eq!(offered(&drained, 4), format!("{node}\n"));
    // Bash parts a word at its equals sign.
    assert_eq!(offered("drover job status -namespace = ba", 5), "bash\n");
    assert_eq!(
        offered("drover job status -namespace = bash ba", 6),
        "bash-web\n"
    );
    assert!(
        offered("drover job hi", 2)
            .lines()
            .any(|word| word == "history")
    );
    assert!(
        offered("drover job status --ver", 3)
            .lines()
            .any(|word| word == "--verbose")
    );
    assert_eq!(offered("drover node drain -ena", 3), "-enable\n");
    assert_eq!(
        offered("drover job run ''", 3),
        "\n",
        "files are the shell's"
    );
    assert_eq!(offered("drover log verify -data-dir ''", 4), "\n");
    stop(&session, "bash");
}

#[test]
fn zsh_completes_ids() {
    let (session, _) = running("zsh");
    // The function alone, with the shell's own replaced by ones that print.
    let script = "compdef() { :; }; source <(drover completions zsh); \
                  compadd() { print -l -- ${(P)@[-1]}; }; _drover() { print static; }; \
                  words=(drover job status zs); CURRENT=4; _drover_ids; \
                  words=(drover job hi); CURRENT=3; _drover_ids";
    match shell("zsh", script, "zsh") {
        Some(reported) => assert_eq!(reported, "zsh-web\nstatic\n"),
        None => skip("completion in zsh", "there is no zsh here"),
    }
    stop(&session, "zsh");
}
