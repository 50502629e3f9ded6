//! The plugin as a real process: what an agent hears of it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use drover_plugins::handshake::{self, COOKIE};
use drover_plugins::{Plugin, schema};
use drover_testkit::{LONG, eventually};
use serde_json::json;

const PLUGIN: &str = env!("CARGO_BIN_EXE_drover-sampledevice");

#[test]
fn it_is_no_program_to_be_started_by_hand() {
    let output = Command::new(PLUGIN).output().expect("it starts");
    assert!(!output.status.success() && output.stdout.is_empty());
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("an agent starts it"), "{why}");
}

#[tokio::test]
async fn it_says_who_it_is_tells_of_its_devices_and_ends_when_it_is_asked_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(PLUGIN)
        .envs([COOKIE])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
    stdout.read_line(&mut line).expect("a line");
    let plugin = Plugin::at(handshake::parse(&line).expect("an address"));
    let info = plugin.info().await.expect("an answer");
    assert!(info.has_devices && info.understood && info.name == "sample");
    let form = plugin.schema().await.expect("an answer");
    let settings = json!({"dir": dir.path()});
    let settings = schema::encoded(form.as_ref(), &settings).expect("it fits");
    let given = plugin.configure(settings.expect("it takes some")).await;
    given.expect("it takes them");

    let mut reported = plugin.fingerprint().await.expect("a stream");
    let mut first = reported.message().await.expect("a message").expect("one");
    let group = first.device_group.remove(0);
    assert_eq!((&*group.device_name, group.devices.len()), ("widget", 2));
    std::fs::write(dir.path().join("commands"), "unhealthy b old\n").expect("written");
    let mut next = reported.message().await.expect("a message").expect("one");
    let device = next.device_group.remove(0).devices.remove(1);
    assert!(
        !device.healthy && device.health_description == "old",
        "{device:?}"
    );

    let reserved = plugin.reserve(vec!["a".to_owned()]).await.expect("given");
    assert_eq!(reserved.envs["SAMPLE_DEVICES"], "a");
    let refused = plugin
        .reserve(vec!["z".to_owned()])
        .await
        .expect_err("none");
    assert_eq!(refused.to_string(), "Reserve: there is no device \"z\"");
    let mut figures = plugin
        .stats(Duration::from_millis(1))
        .await
        .expect("a stream");
    let figures = figures.message().await.expect("a message").expect("one");
    assert_eq!(figures.groups[0].instance_stats.len(), 2);

    plugin.shutdown().await.expect("an answer");
    let ended = eventually("its end", LONG, || match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    });
    assert!(ended.await.expect("it ends").success());
}
